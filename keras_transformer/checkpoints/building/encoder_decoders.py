"""BART and its relatives: settings as arguments of models, the mapping of their tensors, and the heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import models, tasks
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Matrix
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm

_BIAS = "final_logits_bias"
SIDES = {"encoder": "source", "decoder": "target"}


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


def block_entries(
    config: Config, has_final_norm: bool, key_bias: bool | None = None, sides: tuple[str, ...] = tuple(SIDES)
) -> list[Entry]:
    """Returns the mapping of all blocks of these sides, and of their final norms."""
    entries = []
    for side in sides:
        for index in range(config.integer(f"{side}_layers")):
            theirs, ours = f"{side}.layers.{index}", f"{side}_block_{index}"
            entries += block(theirs, ours, has_cross_attention=side == "decoder", key_bias=key_bias)
        entries += norm(f"{side}.layer_norm", f"{side}_final_norm") if has_final_norm else []
    return entries


def block(
    theirs: str, ours: str, *, has_cross_attention: bool = False, bias: bool = True, key_bias: bool | None = None
) -> list[Entry]:
    """Returns the mapping of one block."""
    attentions = {"self_attn": ("self_attention", "mixer")}
    attentions |= {"encoder_attn": ("cross_attention", "cross_attention")} if has_cross_attention else {}
    entries = [
        *linear(f"{theirs}.fc1", f"{ours}/feedforward/hidden", bias=bias),
        *linear(f"{theirs}.fc2", f"{ours}/feedforward/output", bias=bias),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]
    for name, (layer, residual) in attentions.items():
        entries += [
            *attention(
                f"{ours}/{layer}",
                query=f"{theirs}.{name}.q_proj",
                key=f"{theirs}.{name}.k_proj",
                value=f"{theirs}.{name}.v_proj",
                output=f"{theirs}.{name}.out_proj",
                bias=bias,
                key_bias=key_bias,
            ),
            *norm(f"{theirs}.{name}_layer_norm", f"{ours}/{residual}_residual/norm"),
        ]
    return entries


def sizes(config: Config) -> dict[str, Any]:
    """Returns the sizes of encoder and decoder, as arguments of a model."""
    encoder, decoder = (
        models.Size(
            config.integer(f"{side}_layers"),
            config.integer("d_model"),
            config.integer(f"{side}_attention_heads"),
            config.integer(f"{side}_ffn_dim"),
        )
        for side in SIDES
    )
    return {"size": encoder, "decoder_size": decoder, "vocabulary_size": config.integer("vocab_size")}


def options(config: Config, scales_embeddings: bool) -> dict[str, Any]:
    """Returns the other settings of the family, as arguments of a model."""
    config.only("is_decoder", False)
    return {
        "scale_embeddings": config.flag("scale_embedding", scales_embeddings),
        "activation": config.activation("activation_function"),
        "dropout": config.number("dropout", 0.1),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "hidden_dropout": config.number("activation_dropout", 0.0),
    }
