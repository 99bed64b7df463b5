"""RT-DETR and RT-DETRv2: transformers' `RTDetrForObjectDetection` and `RTDetrV2ForObjectDetection`."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.attention import MultiScaleDeformableAttention
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.building.detectors import (
    csp_entries,
    duplicates,
    encoder_block_entries,
    encoder_size,
    last_stages,
    neck_entries,
    query_entries,
    query_options,
    unused_heads,
)
from keras_transformer.checkpoints.building.images import convolution_entries, integers
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, linear, norm
from keras_transformer.models import RTDETR, ResNet, ResNetSize, RTDETRSize
from keras_transformer.models.vision.resnet import SIZES


def detector(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the detector without the class heads of the blocks before the last, which only training uses."""
    return tasks.ObjectDetector(backbone, config.num_labels, num_class_layers=1)


def class_entries(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of the class head of the last block."""
    return linear(f"{prefix}decoder.class_embed.{config.integer('decoder_layers', 6) - 1}", "logits")


def check_head(config: Config) -> None:
    """Raises `ConfigError` for a checkpoint without box heads: its boxes are never refined."""
    if head_of(config) == "Model":
        raise ConfigError(
            f"{config.source}: a model without box heads cannot refine boxes; only 'architectures' with the head "
            "'ObjectDetection' are supported."
        )


class RtDetr(Architecture):
    """RT-DETR with a ResNet-D: Zhao et al., arXiv 2304.08069. The model takes images of any size."""

    base_prefix = "model."
    heads = {"ObjectDetection": Head(detector, class_entries)}
    tied = duplicates()

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        return (r"num_batches_tracked$", r"n_points_scale$", *unused_heads(config))

    def backbone(self, config: Config) -> keras.Model:
        check_head(config)
        size = RTDETRSize(
            config.integer("d_model", 256),
            config.integer("decoder_layers", 6),
            config.integer("decoder_attention_heads", 8),
            config.integer("decoder_ffn_dim", 1024),
            encoder_size(config),
        )
        config.check_depth("decoder_layers", size.num_layers)
        return RTDETR(
            size,
            backbone=_resnet(config),
            cross_attention=self.cross_attention(config, size),
            activation=config.activation("decoder_activation_function", "relu"),
            **query_options(config),
        )

    def cross_attention(self, config: Config, size: RTDETRSize) -> MultiScaleDeformableAttention:
        """Returns the cross-attention of every block."""
        return MultiScaleDeformableAttention(size.num_heads, config.integer("decoder_n_points", 4))

    def entries(self, config: Config) -> list[Entry]:
        entries = [*_resnet_entries(config), *neck_entries(config), *query_entries(config)]
        size = encoder_size(config)
        has_output = int(size.hidden_dim * size.expansion) != size.hidden_dim
        for number in range(2):
            for kind, ours in (("fpn", "top_down"), ("pan", "bottom_up")):
                theirs = f"encoder.{kind}_blocks.{number}"
                entries += csp_entries(theirs, f"{ours}_{number}", size.depth, has_output)
            theirs = f"encoder.downsample_convs.{number}"
            entries += convolution_entries(f"{theirs}.conv", f"{theirs}.norm", f"downsampling_{number}")
        for level in range(3):
            theirs = f"decoder_input_proj.{level}"
            entries += convolution_entries(f"{theirs}.0", f"{theirs}.1", f"memory_projection_{level}")
        for index in range(config.integer("decoder_layers", 6)):
            theirs, ours = f"decoder.layers.{index}", f"decoder_block_{index}"
            entries += [
                *encoder_block_entries(theirs, ours),
                *linear(f"{theirs}.encoder_attn.sampling_offsets", f"{ours}/cross_attention/sampling_offsets"),
                *linear(f"{theirs}.encoder_attn.attention_weights", f"{ours}/cross_attention/attention_weights"),
                *linear(f"{theirs}.encoder_attn.value_proj", f"{ours}/cross_attention/value"),
                *linear(f"{theirs}.encoder_attn.output_proj", f"{ours}/cross_attention/attention_output"),
                *norm(f"{theirs}.encoder_attn_layer_norm", f"{ours}/cross_attention_residual/norm"),
            ]
        return entries


class RtDetrV2(RtDetr):
    """RT-DETRv2: Lv et al., arXiv 2407.17140; it differs in the cross-attention."""

    def cross_attention(self, config: Config, size: RTDETRSize) -> MultiScaleDeformableAttention:
        config.only("decoder_n_levels", 3)
        return MultiScaleDeformableAttention(
            size.num_heads,
            config.integer("decoder_n_points", 4),
            offset_scale=config.number("decoder_offset_scale", 0.5),
            sampling=config.choice("decoder_method", {"default": "bilinear", "discrete": "nearest"}, "default"),
        )


def _resnet_options(config: Config) -> tuple[ResNetSize, dict[str, Any]]:
    """Returns size and options of the backbone."""
    if config.get("backbone_config") is None:
        return SIZES["50"], {}
    backbone = config.section("backbone_config")
    backbone.only("model_type", "rt_detr_resnet", None)
    size = ResNetSize(
        integers(backbone, "hidden_sizes", SIZES["50"].hidden_dims),
        integers(backbone, "depths", SIZES["50"].num_layers),
        backbone.choice("layer_type", {"bottleneck": True, "basic": False}, "bottleneck"),
        backbone.integer("embedding_size", 64),
    )
    config.check_depth("depths", sum(size.num_layers))
    last_stages(backbone, len(size.num_layers))
    return size, {
        "num_channels": backbone.integer("num_channels", 3),
        "activation": backbone.activation("hidden_act", "relu"),
        "downsample_in_first_stage": backbone.flag("downsample_in_first_stage", False),
        "downsample_in_bottleneck": backbone.flag("downsample_in_bottleneck", False),
    }


def _resnet(config: Config) -> keras.Model:
    size, options = _resnet_options(config)
    frozen = config.flag("freeze_backbone_batch_norms", True)
    return ResNet(size, variant="d", frozen_norm=frozen, **options)


def _resnet_entries(config: Config) -> list[Entry]:
    size, options = _resnet_options(config)
    names = [(f"embedder.embedder.{index}", f"stem_{index}") for index in range(3)]
    width = size.stem_dim
    for stage, depth in enumerate(size.num_layers):
        strides = 2 if stage or options.get("downsample_in_first_stage") else 1
        for index in range(depth):
            theirs, ours = f"encoder.stages.{stage}.layers.{index}", f"stage_{stage}_block_{index}"
            parts = 3 if size.is_bottleneck else 2
            names += [(f"{theirs}.layer.{number}", f"{ours}_{number}") for number in range(parts)]
            changes = size.hidden_dims[stage] != width
            if not index and (strides == 2 or changes or not size.is_bottleneck):
                pools = strides == 2 if size.is_bottleneck else changes
                names.append((f"{theirs}.shortcut{'.1' if pools else ''}", f"{ours}_shortcut"))
        width = size.hidden_dims[stage]
    entries = []
    for theirs, ours in names:
        theirs = f"backbone.model.{theirs}"
        entries += convolution_entries(f"{theirs}.convolution", f"{theirs}.normalization", ours)
    return entries
