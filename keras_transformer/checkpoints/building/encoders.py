"""BERT and its relatives: settings as arguments of models, the mapping of their tensors, and the heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.building.heads import classifier_dropout, pooled, span_answerer, token_classifier
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same

# Also in published files: the pooler, which belongs to the backbone, and the other pretraining head.
_UNUSED = (r"\.pooler\.", r"^cls\.seq_relationship\.", r"^sop_classifier\.")


def masked_language_head(
    dense: str, layer_norm: str, bias: str, *, activation: str | Callable[[Config], str] | None = None
) -> Head:
    """Returns the masked language model head, whose output projection is the token embedding.

    Args:
        dense, layer_norm: str. Names of the transform and its norm.
        bias: str. The name of the bias of the logits.
        activation: str, or function of a `Config` to it. Of the transform. Defaults to that of the config.
    """
    return Head(
        lambda backbone, config: masked_language_model(
            backbone, config, activation(config) if callable(activation) else activation
        ),
        lambda config, prefix: [
            *linear(dense, "transform"),
            *norm(layer_norm, "transform_norm"),
            same(bias, "logits/bias"),
        ],
        _UNUSED,
    )


def masked_language_model(backbone: keras.Model, config: Config, activation: str | None = None) -> keras.Model:
    """Returns a masked language model; embeddings that are not tied raise `ConfigError`."""
    config.only("tie_word_embeddings", True)
    return tasks.MaskedLanguageModel(
        backbone,
        activation=activation or config.activation(),
        layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
    )


def sequence_head(
    hidden: str,
    logits: str,
    *,
    activation: str | Callable[[Config], str] = "tanh",
    dropout: Callable[[Config], float] = classifier_dropout,
    num_classes: int | None = None,
    choice: bool = False,
) -> Head:
    """Returns the sequence classification head: a dense layer of the first token, and the logits.

    Args:
        hidden, logits: str. Names of the two dense layers; "{prefix}" in them is the prefix of the backbone's tensors.
        activation: str, or function of a `Config` to it. Of the hidden layer.
        dropout: function of a `Config` to the dropout after the hidden layer.
        num_classes: int. Defaults to that of the config.
        choice: bool. Whether this is the multiple choice head, which scores each of several texts.
    """

    def build(backbone: keras.Model, config: Config) -> keras.Model:
        model = tasks.SequenceClassifier(
            backbone,
            1 if choice else num_classes or config.num_labels,
            pooling="first",
            hidden_dim=backbone.output.shape[-1],
            hidden_activation=activation(config) if callable(activation) else activation,
            dropout=dropout(config),
            activation=None,
        )
        return tasks.MultipleChoice(model) if choice else model

    def entries(config: Config, prefix: str) -> list[Entry]:
        return [*linear(hidden.format(prefix=prefix), "pooler"), *linear(logits, "logits")]

    return Head(build, entries, () if "pooler" in hidden else _UNUSED)


def pretraining_head(masked: Head, hidden: str, logits: str) -> Head:
    """Returns the head of masked language modeling and next sentence prediction.

    Args:
        masked: `Head` of the masked language model.
        hidden, logits: str. Names of the two dense layers of next sentence prediction: see `sequence_head`.
    """

    def build(backbone: keras.Model, config: Config) -> keras.Model:
        tokens = masked.build(backbone, config).output
        x = keras.layers.Dense(2, dtype="float32", name="sentence_logits")(pooled(backbone, config).output["pooled"])
        return keras.Model(backbone.input, {"logits": tokens, "sentence_logits": x}, name="pretraining")

    def entries(config: Config, prefix: str) -> list[Entry]:
        pair = [*linear(hidden.format(prefix=prefix), "pooler"), *linear(logits, "sentence_logits")]
        return [*masked.entries(config, prefix), *pair]

    return Head(build, entries)


def token_head(build: Callable[[keras.Model, Config], keras.Model] = token_classifier) -> Head:
    """Returns the token classification head."""
    return Head(build, lambda config, prefix: linear("classifier", "logits"), _UNUSED)


def span_head(build: Callable[[keras.Model, Config], keras.Model] = span_answerer) -> Head:
    """Returns the question answering head."""
    return Head(build, lambda config, prefix: linear("qa_outputs", "span"), _UNUSED)


def embedding_entries() -> list[Entry]:
    """The mapping of the embeddings, under the names of BERT."""
    return [
        *embedding("embeddings.word_embeddings", "token_embedding"),
        *embedding("embeddings.token_type_embeddings", "segment_embedding"),
        *embedding("embeddings.position_embeddings", "position_embedding"),
        *norm("embeddings.LayerNorm", "embedding_norm"),
    ]


def encoder_entries(config: Config) -> list[Entry]:
    """The mapping of all blocks, under the names of BERT."""
    indices = range(config.integer("num_hidden_layers"))
    return [entry for i in indices for entry in block_entries(f"encoder.layer.{i}", f"encoder_block_{i}")]


def block_entries(theirs: str, ours: str) -> list[Entry]:
    """The mapping of one post-norm block, under the names of BERT."""
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.self.query",
            key=f"{theirs}.attention.self.key",
            value=f"{theirs}.attention.self.value",
            output=f"{theirs}.attention.output.dense",
        ),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}/feedforward_residual/norm"),
    ]


def encoder_options(config: Config, activation: str = "gelu") -> dict[str, Any]:
    """Returns the options that BERT and its relatives share. A decoder raises.

    Args:
        config: `Config`.
        activation: str. The default, by its name in transformers.
    """
    config.only("is_decoder", False)
    return {
        "vocabulary_size": config.integer("vocab_size"),
        "activation": config.activation(default=activation),
        "dropout": config.number("hidden_dropout_prob", 0.1),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.1),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-12),
    }
