"""ViT: transformers\' `ViTModel` and its heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded, Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm, same
from keras_transformer.models import Size, ViT

_POOLER = "pooler.dense"
_LONGEST = 16


def pooled_class_token(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the tokens and a dense layer of the first; only the tokens if the file has no such layer, as for DINO."""
    if not _has_pooler(config):
        return backbone
    units, activation = config.integer("pooler_output_size", config.integer("hidden_size", 768)), "tanh"
    if "pooler_act" in config:
        activation = config.activation("pooler_act")
    x = keras.layers.Dense(units, activation=activation, name="pooler")(backbone.output[:, 0])
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": x}, name=backbone.name)


def pooler_entries(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of `pooled_class_token`."""
    return linear(f"{prefix}{_POOLER}", "pooler") if _has_pooler(config) else []


def _has_pooler(config: Config) -> bool:
    return any(name.endswith(f"{_POOLER}.weight") for name in config.tensors)


class Vit(Architecture):
    """The Vision Transformer: Dosovitskiy et al., arXiv 2010.11929."""

    base_prefix = "vit."
    ignored = (r"embeddings\.mask_token$",)
    heads = {
        "Model": Head(pooled_class_token, pooler_entries),
        "ImageClassification": Head(
            lambda backbone, config: tasks.ImageClassifier(backbone, config.num_labels, activation=None),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        options = {**image_options(config), **vit_options(config), "attention": vit_attention(config)}
        return ViT(vit_size(config), interpolation="bicubic", **options)

    def entries(self, config: Config) -> list[Entry]:
        return vit_entries(config)


def vit_size(config: Config) -> Size:
    """Returns the `Size` of a vision transformer."""
    return Size(
        config.integer("num_hidden_layers", 12),
        config.integer("hidden_size", 768),
        config.integer("num_attention_heads", 12),
        config.integer("intermediate_size", 3072),
    )


def image_options(config: Config, image_size: int = 224, patch_size: int = 16) -> dict[str, Any]:
    """Returns the options of images; the arguments are the defaults of missing settings."""
    image, patch = sides(config, "image_size", image_size), sides(config, "patch_size", patch_size)
    if any(side % part for side, part in zip(image, patch, strict=True)):
        raise ConfigError(f"{config.source}: 'image_size' {image} does not divide into patches of {patch}.")
    return {"patch_size": patch, "image_size": image, "num_channels": config.integer("num_channels", 3)}


def sides(config: Config, name: str, default: int) -> tuple[int, int]:
    """Returns height and width, from one number or two."""
    found = config.get(name, default)
    if not isinstance(found, list):
        side = config.integer(name, default)
        return side, side
    if len(found) != 2:
        raise ConfigError(f"{config.source}: {name!r} is {str(found)[:80]}; expected one number or two.")
    height, width = integers(config, name, default)
    return height, width


def integers(config: Config, name: str, default: Any) -> tuple[int, ...]:
    """Returns a setting that is a short list of integers, as a tuple."""
    found = config.get(name, default)
    if not isinstance(found, (list, tuple)) or not 1 <= len(found) <= _LONGEST:
        raise ConfigError(f"{config.source}: {name!r} is {str(found)[:80]!r}; expected a list of numbers.")
    return tuple(type(config)({name: each}, config.source).integer(name) for each in found)


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


def patch_entries(theirs: str, ours: str, bias: bool = True) -> list[Entry]:
    """Returns the mapping of a convolution over patches."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Transposed((3, 2, 0, 1)))]
    return [*entries, same(f"{theirs}.bias", f"{ours}/bias")] if bias else entries


def embedding_entries() -> list[Entry]:
    """Returns the mapping of patches, class token and positions."""
    table = "position_embeddings"
    return [
        same("embeddings.cls_token", "patch_embedding/class_embedding"),
        Entry((f"embeddings.{table}",), (f"patch_embedding/{table}",), Expanded()),
        *patch_entries("embeddings.patch_embeddings.projection", "patch_embedding/projection"),
    ]


def vit_entries(config: Config) -> list[Entry]:
    """Returns the mapping that ViT and DeiT share."""
    entries = embedding_entries()
    for index in range(config.integer("num_hidden_layers", 12)):
        theirs, ours = f"encoder.layer.{index}", f"encoder_block_{index}"
        entries += [
            *attention_entries(theirs, ours, config),
            *norm(f"{theirs}.layernorm_before", f"{ours}/mixer_residual/norm"),
            *norm(f"{theirs}.layernorm_after", f"{ours}/feedforward_residual/norm"),
            *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
            *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        ]
    return [*entries, *norm("layernorm", "final_norm")]


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
