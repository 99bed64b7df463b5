"""Heads of encoder-decoders."""

from __future__ import annotations

import keras

from keras_transformer import models, tasks
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Matrix
from keras_transformer.checkpoints.mapping import Entry, linear

_BIAS = "final_logits_bias"


def start_id(config: Config) -> int:
    """Returns the first token of the decoder."""
    return config.integer("decoder_start_token_id", config.integer("pad_token_id", 0, minimum=0), minimum=0)


def language_model(
    backbone: keras.Model, config: Config, *, tie_embeddings: bool | None = None, head_scale: float = 1.0
) -> keras.Model:
    """Returns a language model; its logits have a bias if the checkpoint has one.

    Args:
        backbone: `keras.Model`.
        config: `Config`.
        tie_embeddings: bool. Defaults to "tie_word_embeddings".
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


def language_head(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of `language_model`."""
    entries = [] if config.flag("tie_word_embeddings", True) else linear("lm_head", "head", bias=False)
    # A matrix of one row there.
    bias = Entry((_BIAS,), ("logits/bias",), Matrix(inputs=0, transposed=False))
    return [*entries, bias] if _BIAS in config.tensors else entries


def sequence_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns a classifier of a text that encoder and decoder read, by its last token, which must be the end token."""
    return tasks.SequenceClassifier(
        models.read_twice(backbone, start_id(config)),
        config.num_labels,
        pooling="last",
        hidden_dim=config.integer("d_model"),
        dropout=config.number("classifier_dropout", 0.0),
        activation=None,
    )


def classification_head(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of `sequence_classifier`."""
    return [*linear("classification_head.dense", "pooler"), *linear("classification_head.out_proj", "logits")]


def span_answerer(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the extractive question-answering model; encoder and decoder both read the text."""
    return tasks.SpanAnswerer(models.read_twice(backbone, start_id(config)))


def span_head(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of `span_answerer`."""
    return linear("qa_outputs", "span")
