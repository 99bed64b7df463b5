"""DINOv3: transformers' `DINOv3ViTModel`."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.images import image_options, patch_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Empty, Expanded
from keras_transformer.checkpoints.mapping import Entry, linear, norm, same
from keras_transformer.feedforward import DenseFeedForward, GatedFeedForward
from keras_transformer.models import DINOv3, Size
from keras_transformer.positions import AxialRotary
from keras_transformer.vision import PatchCoordinates


class Dinov3Vit(Architecture):
    """DINOv3: Siméoni et al., arXiv 2508.10104.

    Images have the size of the config; `models.with_image_size` makes a model of the same weights for others, or for any.
    """

    ignored = (r"embeddings\.mask_token$",)

    def backbone(self, config: Config) -> keras.Model:
        size = _size(config)
        if size.hidden_dim % (4 * size.num_heads):
            heads = f"'num_attention_heads' {size.num_heads}"
            raise ConfigError(
                f"{config.source}: 'hidden_size' {size.hidden_dim} is not a multiple of 4 for each of {heads}."
            )
        make_feedforward = GatedFeedForward if config.flag("use_gated_mlp", False) else DenseFeedForward
        return DINOv3(
            size,
            **image_options(config),
            num_register_tokens=_num_registers(config),
            mask_token=False,
            feedforward=make_feedforward(
                size.intermediate_dim, activation=config.activation(), use_bias=config.flag("mlp_bias", True)
            ),
            attention=MultiHeadAttention(
                size.num_heads,
                size.hidden_dim // size.num_heads,
                dropout=config.number("attention_dropout", 0.0),
                use_bias=config.flag("query_bias", True),
                use_key_bias=config.flag("key_bias", False),
                use_value_bias=config.flag("value_bias", True),
                use_output_bias=config.flag("proj_bias", True),
                position=AxialRotary(max_wavelength=config.number("rope_theta", 100.0)),
            ),
            coordinates=PatchCoordinates(
                shift=config.number("pos_embed_shift", None),
                jitter=config.number("pos_embed_jitter", None),
                # Null is no rescaling; only a missing setting has the default.
                rescale=config.number("pos_embed_rescale", None if "pos_embed_rescale" in config.values else 2.0),
            ),
            layer_scale=config.number("layerscale_value", 1.0),
            stochastic_depth=config.number("drop_path_rate", 0.0),
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-5),
        )

    def entries(self, config: Config) -> list[Entry]:
        registers = ("patch_embedding/register_embeddings",)
        # Without registers, the file has a tensor of them without elements.
        layout = Expanded() if _num_registers(config) else Empty((1, 0, _size(config).hidden_dim))
        entries = [
            same("embeddings.cls_token", "patch_embedding/class_embedding"),
            Entry(("embeddings.register_tokens",), registers if _num_registers(config) else (), layout),
            *patch_entries("embeddings.patch_embeddings", "patch_embedding/projection"),
        ]
        for index in range(config.integer("num_hidden_layers", 12)):
            entries += _block_entries(f"layer.{index}", f"encoder_block_{index}", config)
        return [*entries, *norm("norm", "final_norm")]


def _block_entries(theirs: str, ours: str, config: Config) -> list[Entry]:
    attention, feedforward = f"{ours}/self_attention", f"{ours}/feedforward"
    entries = [
        *norm(f"{theirs}.norm1", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.norm2", f"{ours}/feedforward_residual/norm"),
        same(f"{theirs}.layer_scale1.lambda1", f"{ours}/mixer_residual/scale"),
        same(f"{theirs}.layer_scale2.lambda1", f"{ours}/feedforward_residual/scale"),
    ]
    for letter, name, flag, default in (
        ("q", "query", "query_bias", True),
        ("k", "key", "key_bias", False),
        ("v", "value", "value_bias", True),
        ("o", "attention_output", "proj_bias", True),
    ):
        entries += linear(
            f"{theirs}.attention.{letter}_proj",
            f"{attention}/{name}",
            inputs=2 if letter == "o" else 1,
            bias=config.flag(flag, default),
        )
    names = {"up_proj": "hidden", "down_proj": "output"}
    names |= {"gate_proj": "gate"} if config.flag("use_gated_mlp", False) else {}
    for their_name, our_name in names.items():
        bias = config.flag("mlp_bias", True)
        entries += linear(f"{theirs}.mlp.{their_name}", f"{feedforward}/{our_name}", bias=bias)
    return entries


def _size(config: Config) -> Size:
    return Size(
        config.integer("num_hidden_layers", 12),
        config.integer("hidden_size", 384),
        config.integer("num_attention_heads", 6),
        config.integer("intermediate_size", 1536),
    )


def _num_registers(config: Config) -> int:
    return config.integer("num_register_tokens", 0, minimum=0)
