"""Heads that many architectures share; each is a task whose outputs are logits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear


def classifier_dropout(config: Config, fallback: str = "hidden_dropout_prob") -> float:
    """Returns the dropout before a classifier."""
    return config.number("classifier_dropout", config.number(fallback, 0.0))


def token_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns a model that classifies every token."""
    return tasks.Tagger(backbone, config.num_labels, dropout=classifier_dropout(config))


def span_answerer(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the extractive question-answering model."""
    return tasks.SpanAnswerer(backbone)


def pooled(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the tokens and BERT's pooler: `tanh(W x + b)` of the first token."""
    x = keras.layers.Dense(backbone.output.shape[-1], activation="tanh", name="pooler")(backbone.output[:, 0])
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": x}, name=backbone.name)


def language_model(backbone: keras.Model, config: Config, *, tied: bool = False, **options: Any) -> keras.Model:
    """Returns a language model; `tied` is the default of "tie_word_embeddings"."""
    ties = config.flag("tie_word_embeddings", tied)
    return tasks.LanguageModel(backbone, tie_embeddings=ties, end_id=config.tokens("eos_token_id"), **options)


def last_token_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns a classifier of the sequence by its last real token, without a bias."""
    return tasks.SequenceClassifier(backbone, config.num_labels, pooling="last", activation=None, use_bias=False)


def decoder_heads(
    language_head: str = "CausalLM",
    *,
    language_model: Callable[..., keras.Model] = language_model,
    tied: bool = False,
    lm_head: str = "lm_head",
    tagger: str = "score",
    names: Sequence[str] | None = None,
) -> dict[str, Head]:
    """Returns the heads of decoders in transformers.

    Args:
        language_head: str. The name of the language model head.
        language_model: function of `(backbone, config, tied=...)` to the language model.
        tied: bool. The default of "tie_word_embeddings".
        lm_head: str. The name of the output projection, if embeddings are not tied.
        tagger: str. The name of the `Linear` of the token classifier.
        names: names of the heads to return; None for all.

    Returns:
        dict of name to `Head`.
    """

    def lm_entries(config: Config, prefix: str) -> list[Entry]:
        return [] if config.flag("tie_word_embeddings", tied) else linear(lm_head, "head", bias=False)

    heads = {
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
    return heads if names is None else {name: heads[name] for name in names}


def _hidden_dropout(config: Config) -> float:
    return config.number("hidden_dropout", 0.1)
