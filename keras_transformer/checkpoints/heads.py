"""Heads that many architectures share; each is a task with its outputs as logits."""

import functools

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.mapping import linear


def classifier_dropout(config, fallback="hidden_dropout_prob"):
    """The dropout before a classifier."""
    return config.number("classifier_dropout", config.number(fallback, 0.0))


def token_classifier(backbone, config):
    """A tag for every token."""
    return tasks.Tagger(backbone, config.num_labels, dropout=classifier_dropout(config))


def span_answerer(backbone, config):
    """Start and end of an answer."""
    return tasks.SpanAnswerer(backbone)


def pooled(backbone, config):
    """Tokens, and `tanh(W x + b)` of the first: BERT's pooler."""
    x = keras.layers.Dense(backbone.output.shape[-1], activation="tanh", name="pooler")(backbone.output[:, 0])
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": x}, name=backbone.name)


def language_model(backbone, config, *, tied=False, **options):
    """The next token; `tied` is what the config stands for where it does not say whether the tables are one."""
    ties = config.flag("tie_word_embeddings", tied)
    return tasks.LanguageModel(backbone, tie_embeddings=ties, end_id=config.tokens("eos_token_id"), **options)


def last_token_classifier(backbone, config):
    """A class for the sequence by its last real token, without a bias."""
    return tasks.SequenceClassifier(backbone, config.num_labels, pooling="last", activation=None, use_bias=False)


def decoder_heads(
    language_head="CausalLM", *, language_model=language_model, tied=False, lm_head="lm_head", tagger="score"
):
    """The heads that transformers has for decoders.

    Args:
        language_head: str: the name of that of next tokens.
        language_model: function of `(backbone, config, tied=...)` to it.
        tied: bool: whether the tables are one where the config does not say.
        lm_head: str: the `Linear` to the vocabulary, where the tables are two.
        tagger: str: the `Linear` of the token classifier.

    Returns:
        dict of name to `Head`.
    """

    def lm_entries(config, prefix):
        return [] if config.flag("tie_word_embeddings", tied) else linear(lm_head, "head", bias=False)

    return {
        language_head: Head(functools.partial(language_model, tied=tied), lm_entries),
        "SequenceClassification": Head(
            last_token_classifier, lambda config, prefix: linear("score", "logits", bias=False)
        ),
        "TokenClassification": Head(
            lambda backbone, config: tasks.Tagger(
                backbone, config.num_labels, dropout=config.number("classifier_dropout", _hidden_dropout(config))
            ),
            lambda config, prefix: linear(tagger, "logits"),
        ),
        "QuestionAnswering": Head(span_answerer, lambda config, prefix: linear("qa_outputs", "span")),
    }


def _hidden_dropout(config):
    return config.number("hidden_dropout", 0.1)
