"""DINOv2, with registers or without: transformers' `Dinov2Model`, `Dinov2WithRegistersModel`, and their heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import (
    attention_entries,
    image_embedding_entries,
    image_options,
    vit_options,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry, fused_linear, linear, norm, same
from keras_transformer.models import DINOv2, Size


class Dinov2(Architecture):
    """DINOv2: Oquab et al., arXiv 2304.07193."""

    base_prefix = "dinov2."
    ignored = (r"embeddings\.mask_token$",)
    heads = {
        "ImageClassification": Head(
            lambda backbone, config: tasks.ImageClassifier(
                backbone, config.num_labels, pooling="class_token_and_mean", activation=None
            ),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("qkv_bias", True)
        width, gated = config.integer("hidden_size", 768), config.flag("use_swiglu_ffn", False)
        size = Size(
            config.integer("num_hidden_layers", 12),
            width,
            config.integer("num_attention_heads", 12),
            _intermediate_dim(width, config.number("mlp_ratio", 4.0), gated),
        )
        return DINOv2(
            size,
            **image_options(config, patch_size=14),
            gated=gated,
            mask_token=False,
            **self.options(config),
            layer_scale=config.number("layerscale_value", 1.0),
            stochastic_depth=config.number("drop_path_rate", 0.0),
            **vit_options(config, layer_norm_epsilon=1e-6),
        )

    def options(self, config: Config) -> dict[str, Any]:
        """Returns further arguments of `models.DINOv2`, for a kind that extends this one."""
        return {}

    def entries(self, config: Config) -> list[Entry]:
        entries = image_embedding_entries()
        for index in range(config.integer("num_hidden_layers", 12)):
            theirs, ours = f"encoder.layer.{index}", f"encoder_block_{index}"
            entries += [
                *attention_entries(theirs, ours, config),
                *norm(f"{theirs}.norm1", f"{ours}/mixer_residual/norm"),
                *norm(f"{theirs}.norm2", f"{ours}/feedforward_residual/norm"),
                same(f"{theirs}.layer_scale1.lambda1", f"{ours}/mixer_residual/scale"),
                same(f"{theirs}.layer_scale2.lambda1", f"{ours}/feedforward_residual/scale"),
                *_feedforward(f"{theirs}.mlp", f"{ours}/feedforward", config.flag("use_swiglu_ffn", False)),
            ]
        return [*entries, *norm("layernorm", "final_norm")]


def _feedforward(theirs: str, ours: str, gated: bool) -> list[Entry]:
    if gated:
        gate_and_hidden = [f"{ours}/gate", f"{ours}/hidden"]
        return [
            *fused_linear(f"{theirs}.weights_in", gate_and_hidden),
            *linear(f"{theirs}.weights_out", f"{ours}/output"),
        ]
    return [*linear(f"{theirs}.fc1", f"{ours}/hidden"), *linear(f"{theirs}.fc2", f"{ours}/output")]


def _intermediate_dim(width: int, ratio: float, gated: bool) -> int:
    """Returns the inner width; for SwiGLU two thirds of it, rounded up to a multiple of 8."""
    whole = int(width * ratio)
    return -(-int(whole * 2 / 3) // 8) * 8 if gated else whole


class Dinov2WithRegisters(Dinov2):
    """DINOv2 with registers: Darcet et al., arXiv 2309.16588.

    Images of another size than the config's resize the position table without the antialiasing of transformers.
    """

    base_prefix = "dinov2_with_registers."

    def options(self, config: Config) -> dict[str, Any]:
        return {"num_register_tokens": config.integer("num_register_tokens", 4)}

    def entries(self, config: Config) -> list[Entry]:
        registers = Entry(("embeddings.register_tokens",), ("patch_embedding/register_embeddings",), Expanded())
        return [*super().entries(config), registers]
