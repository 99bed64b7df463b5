"""The mapping of models of images: patches, class token and positions, and the blocks of ViT."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded, PointConvolution, Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, batch_norm, linear, norm, same


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
