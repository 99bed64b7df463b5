"""BART and mBART: transformers' `BartModel`, `MBartModel`, and their heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import models
from keras_transformer.checkpoints import encoder_decoder_heads as of_both
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm

SIDES = {"encoder": "source", "decoder": "target"}


class Bart(Architecture):
    """BART: Lewis et al., arXiv 1910.13461."""

    base_prefix = "model."
    ignored = (r"^(model\.)?(en|de)coder\.version$",)
    tied = {
        "lm_head.weight": "model.shared.weight",
        **{
            f"{prefix}{side}.embed_tokens.weight": f"{prefix}shared.weight"
            for prefix in ("", base_prefix)
            for side in SIDES
        },
    }
    heads = {
        "ConditionalGeneration": Head(of_both.language_model, of_both.language_head),
        "Model": Head(),
        "QuestionAnswering": Head(of_both.span_answerer, of_both.span_head),
        "SequenceClassification": Head(of_both.sequence_classifier, of_both.classification_head),
    }
    make = staticmethod(models.BART)
    scales_embeddings = False
    has_final_norm = False

    def backbone(self, config: Config) -> keras.Model:
        return self.make(
            **sizes(config),
            max_sequence_length=config.integer("max_position_embeddings"),
            **options(config, self.scales_embeddings),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding("shared", "token_embedding")]
        for theirs, ours in SIDES.items():
            entries += [
                *embedding(f"{theirs}.embed_positions", f"{ours}_position"),
                *norm(f"{theirs}.layernorm_embedding", f"{ours}_embedding_norm"),
            ]
        return [*entries, *block_entries(config, self.has_final_norm)]


class MBart(Bart):
    """mBART: Liu et al., arXiv 2001.08210."""

    heads = {name: Bart.heads[name] for name in ("ConditionalGeneration", "Model")}
    make = staticmethod(models.MBart)
    has_final_norm = True


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


def block_entries(
    config: Config, has_final_norm: bool, key_bias: bool | None = None, sides: tuple[str, ...] = tuple(SIDES)
) -> list[Entry]:
    """Returns the mapping of all blocks of these sides, and of their final norms."""
    entries = []
    for side in sides:
        for index in range(config.integer(f"{side}_layers")):
            entries += _block(side, index, key_bias)
        entries += norm(f"{side}.layer_norm", f"{side}_final_norm") if has_final_norm else []
    return entries


def _block(side: str, index: int, key_bias: bool | None) -> list[Entry]:
    theirs, ours = f"{side}.layers.{index}", f"{side}_block_{index}"
    attentions = {"self_attn": ("self_attention", "mixer")}
    attentions |= {"encoder_attn": ("cross_attention", "cross_attention")} if side == "decoder" else {}
    entries = [
        *linear(f"{theirs}.fc1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.fc2", f"{ours}/feedforward/output"),
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
                key_bias=key_bias,
            ),
            *norm(f"{theirs}.{name}_layer_norm", f"{ours}/{residual}_residual/norm"),
        ]
    return entries
