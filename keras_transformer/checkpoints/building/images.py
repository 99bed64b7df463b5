"""Models of images: settings as arguments of models, and the mapping of their tensors."""

from __future__ import annotations

from typing import Any

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded, PointConvolution, Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, batch_norm, linear, norm, same
from keras_transformer.models import Size

_LONGEST = 16


def patch_entries(theirs: str, ours: str, bias: bool = True) -> list[Entry]:
    """Returns the mapping of a convolution over patches, or of a transposed one."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Transposed((3, 2, 0, 1)))]
    return [*entries, same(f"{theirs}.bias", f"{ours}/bias")] if bias else entries


def point_entries(theirs: str, ours: str, bias: bool = True) -> list[Entry]:
    """Returns the mapping of a 1 x 1 convolution to a dense layer."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), PointConvolution())]
    return [*entries, same(f"{theirs}.bias", f"{ours}/bias")] if bias else entries


def depthwise_entries(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of a depthwise convolution."""
    entry = Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Transposed((2, 3, 0, 1)))
    return [entry, same(f"{theirs}.bias", f"{ours}/bias")]


def convolution_entries(kernel: str, norm: str, ours: str, depthwise: bool = False) -> list[Entry]:
    """Returns the mapping of a `models.building.convolution`; `kernel` and `norm` are the names of its two layers."""
    axes = (2, 3, 0, 1) if depthwise else (3, 2, 0, 1)
    entry = Entry((f"{kernel}.weight",), (f"{ours}_convolution/kernel",), Transposed(axes))
    return [entry, *batch_norm(norm, f"{ours}_norm")]


def image_embedding_entries() -> list[Entry]:
    """Returns the mapping of patches, class token and positions."""
    table = "position_embeddings"
    return [
        same("embeddings.cls_token", "patch_embedding/class_embedding"),
        Entry((f"embeddings.{table}",), (f"patch_embedding/{table}",), Expanded()),
        *patch_entries("embeddings.patch_embeddings.projection", "patch_embedding/projection"),
    ]


def vit_entries(config: Config) -> list[Entry]:
    """Returns the mapping that ViT and DeiT share."""
    return [*image_embedding_entries(), *block_entries(config), *norm("layernorm", "final_norm")]


def block_entries(config: Config) -> list[Entry]:
    """Returns the mapping of the blocks of ViT."""
    entries = []
    for index in range(config.integer("num_hidden_layers", 12)):
        theirs, ours = f"encoder.layer.{index}", f"encoder_block_{index}"
        entries += [
            *attention_entries(theirs, ours, config),
            *norm(f"{theirs}.layernorm_before", f"{ours}/mixer_residual/norm"),
            *norm(f"{theirs}.layernorm_after", f"{ours}/feedforward_residual/norm"),
            *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
            *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        ]
    return entries


def attention_entries(theirs: str, ours: str, config: Config) -> list[Entry]:
    """Returns the mapping of the attention of a block."""
    return attention(
        f"{ours}/self_attention",
        query=f"{theirs}.attention.attention.query",
        key=f"{theirs}.attention.attention.key",
        value=f"{theirs}.attention.attention.value",
        output=f"{theirs}.attention.output.dense",
        bias=config.flag("qkv_bias", True),
        output_bias=True,
    )


def image_options(config: Config, image_size: int = 224, patch_size: int = 16) -> dict[str, Any]:
    """Returns the options of images; the arguments are the defaults of missing settings."""
    image, patch = sides(config, "image_size", image_size), sides(config, "patch_size", patch_size)
    if any(side % part for side, part in zip(image, patch, strict=True)):
        raise ConfigError(f"{config.source}: 'image_size' {image} does not divide into patches of {patch}.")
    return {"patch_size": patch, "image_size": image, "num_channels": config.integer("num_channels", 3)}


def sides(config: Config, name: str, default: int | tuple[int, int]) -> tuple[int, int]:
    """Returns height and width, from one number or two."""
    found = config.get(name, default)
    if not isinstance(found, (list, tuple)):
        side = config.integer(name, default)
        return side, side
    if len(found) != 2:
        raise ConfigError(f"{config.source}: {name!r} is {shown(found)}; it must be one number or two.")
    height, width = integers(config, name, default)
    return height, width


def integers(config: Config, name: str, default: object, minimum: int = 1) -> tuple[int, ...]:
    """Returns a setting that is a short list of integers, as a tuple."""
    found = config.get(name, default)
    if not isinstance(found, (list, tuple)) or not 1 <= len(found) <= _LONGEST:
        raise ConfigError(f"{config.source}: {name!r} is {shown(found)}; it must be a list of numbers.")
    return tuple(type(config)({name: each}, config.source).integer(name, minimum=minimum) for each in found)


def vit_size(config: Config) -> Size:
    """Returns the `Size` of a vision transformer."""
    return Size(
        config.integer("num_hidden_layers", 12),
        config.integer("hidden_size", 768),
        config.integer("num_attention_heads", 12),
        config.integer("intermediate_size", 3072),
    )


def vit_options(config: Config, layer_norm_epsilon: float = 1e-12) -> dict[str, Any]:
    """Returns the options that ViT, DeiT and DINOv2 share."""
    return {
        "activation": config.activation(),
        "dropout": config.number("hidden_dropout_prob", 0.0),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.0),
        "layer_norm_epsilon": config.number("layer_norm_eps", layer_norm_epsilon),
    }


def vit_attention(config: Config) -> MultiHeadAttention:
    """Returns the attention of every block, with or without biases of queries, keys and values."""
    size = vit_size(config)
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        dropout=config.number("attention_probs_dropout_prob", 0.0),
        use_bias=config.flag("qkv_bias", True),
        use_output_bias=True,
    )
