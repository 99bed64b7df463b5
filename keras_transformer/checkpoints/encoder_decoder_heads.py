"""Heads of encoder-decoders."""

from keras_transformer import models, tasks
from keras_transformer.checkpoints.layouts import Matrix
from keras_transformer.checkpoints.mapping import Entry, linear

_BIAS = "final_logits_bias"


def start_id(config):
    """The token that the decoder begins with."""
    return config.integer("decoder_start_token_id", config.integer("pad_token_id", 0, minimum=0), minimum=0)


def language_model(backbone, config, *, tie_embeddings=None, head_scale=1.0):
    """Generation; the logits have a bias where the checkpoint has one.

    Args:
        backbone: `keras.Model`.
        config: `Config`.
        tie_embeddings: bool, or None for what the config says.
        head_scale: float.
    """
    return tasks.LanguageModel(
        backbone,
        tie_embeddings=config.flag("tie_word_embeddings", True) if tie_embeddings is None else tie_embeddings,
        head_scale=head_scale,
        head_bias=_BIAS in config.tensors,
        start_id=start_id(config),
        end_id=config.tokens("eos_token_id"),
    )


def language_head(config, prefix):
    """The mapping of `language_model`."""
    entries = [] if config.flag("tie_word_embeddings", True) else linear("lm_head", "head", bias=False)
    # One row there.
    bias = Entry((_BIAS,), ("logits/bias",), Matrix(inputs=0, transposed=False))
    return [*entries, bias] if _BIAS in config.tensors else entries


def sequence_classifier(backbone, config):
    """A class for a text that encoder and decoder read, by the decoder's last token, which has to be that of the end."""
    return tasks.SequenceClassifier(
        models.read_twice(backbone, start_id(config)),
        config.num_labels,
        pooling="last",
        hidden_dim=config.integer("d_model"),
        dropout=config.number("classifier_dropout", 0.0),
        activation=None,
    )


def classification_head(config, prefix):
    """The mapping of `sequence_classifier`."""
    return [*linear("classification_head.dense", "pooler"), *linear("classification_head.out_proj", "logits")]


def span_answerer(backbone, config):
    """Start and end of an answer in a text that encoder and decoder read."""
    return tasks.SpanAnswerer(models.read_twice(backbone, start_id(config)))


def span_head(config, prefix):
    """The mapping of `span_answerer`."""
    return linear("qa_outputs", "span")
