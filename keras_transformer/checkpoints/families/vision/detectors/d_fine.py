"""D-FINE: transformers' `DFineForObjectDetection`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.attention import MultiScaleDeformableAttention
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.detectors import (
    box_entries,
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
from keras_transformer.checkpoints.families.vision.detectors.rt_detr import check_head, class_entries, detector
from keras_transformer.checkpoints.mapping import Entry, linear, norm, same
from keras_transformer.models import DFINE, DFINESize, HGNetV2, HGNetV2Size, HGNetV2Stage
from keras_transformer.models.vision.hgnet_v2 import SIZES
from keras_transformer.vision import DistributionRefinement

if TYPE_CHECKING:
    from keras_transformer.models.vision.detectors.hybrid_encoder import HybridEncoderSize


class DFine(Architecture):
    """D-FINE with an HGNetV2: Peng et al., arXiv 2410.13842. The model takes images of any size."""

    base_prefix = "model."
    heads = {"ObjectDetection": Head(detector, class_entries)}
    tied = duplicates()

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        return (r"num_batches_tracked$", r"num_points_scale$", *unused_heads(config))

    def backbone(self, config: Config) -> keras.Model:
        check_head(config)
        heads, layers = config.integer("decoder_attention_heads", 8), config.integer("decoder_layers", 6)
        config.check_depth("decoder_layers", layers)
        if config.get("eval_idx", -1) not in (-1, layers - 1):
            raise ConfigError(f"{config.source}: 'eval_idx' must be that of the last block, -1.")
        size = DFINESize(
            config.integer("d_model", 256),
            layers,
            heads,
            config.integer("decoder_ffn_dim", 1024),
            _encoder_size(config),
            curvature=config.number("reg_scale", 4.0),
        )
        attention = MultiScaleDeformableAttention(
            heads,
            _points(config),
            offset_scale=config.number("decoder_offset_scale", 0.5),
            sampling=config.choice("decoder_method", {"default": "bilinear", "discrete": "nearest"}, "default"),
            use_projections=False,
        )
        refinement = DistributionRefinement(
            _bins(config),
            config.integer("top_prob_values", 4),
            config.integer("lqe_hidden_dim", 64),
            config.integer("lqe_layers", 2),
        )
        return DFINE(
            size,
            backbone=_hgnet(config),
            cross_attention=attention,
            refinement=refinement,
            activation=config.activation("decoder_activation_function", "relu"),
            **query_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        size = _encoder_size(config)
        entries = [
            *_hgnet_entries(config),
            *neck_entries(config),
            *query_entries(config, last="distribution"),
            *box_entries("decoder.pre_bbox_head", "first_boxes"),
            same("decoder.reg_scale", "distribution_bins/curvature"),
            same("decoder.up", "distribution_bins/upper_bound"),
        ]
        for number in range(2):
            for kind, ours in (("fpn", "top_down"), ("pan", "bottom_up")):
                entries += _gelan_entries(f"encoder.{kind}_blocks.{number}", f"{ours}_{number}", size.depth)
            theirs, ours = f"encoder.downsample_convs.{number}", f"downsampling_{number}"
            entries += convolution_entries(f"{theirs}.conv1.conv", f"{theirs}.conv1.norm", f"{ours}_point")
            entries += convolution_entries(f"{theirs}.conv2.conv", f"{theirs}.conv2.norm", ours, depthwise=True)
        if config.integer("d_model", 256) != size.hidden_dim:
            for level in range(3):
                theirs = f"decoder_input_proj.{level}"
                entries += convolution_entries(f"{theirs}.0", f"{theirs}.1", f"memory_projection_{level}")
        for index in range(config.integer("decoder_layers", 6)):
            entries += _block_entries(f"decoder.layers.{index}", f"decoder_block_{index}")
            for layer in range(config.integer("lqe_layers", 2)):
                theirs = f"decoder.lqe_layers.{index}.reg_conf.layers.{layer}"
                entries += linear(theirs, f"refined_boxes_{index}/quality_{layer}")
        return entries


def _points(config: Config) -> tuple[int, ...]:
    """Returns the number of points in each feature map."""
    if not isinstance(config.get("decoder_n_points", 4), list):
        return (config.integer("decoder_n_points", 4),) * 3
    points = integers(config, "decoder_n_points", 4)
    if len(points) != 3:
        raise ConfigError(f"{config.source}: 'decoder_n_points' must be one number or three. Found: {list(points)}")
    return points


def _bins(config: Config) -> int:
    bins: int = config.integer("max_num_bins", 32)
    if bins < 4 or bins % 2:
        raise ConfigError(f"{config.source}: 'max_num_bins' must be an even number of at least 4. Found: {bins}")
    return bins


def _encoder_size(config: Config) -> HybridEncoderSize:
    """Returns the `HybridEncoderSize`, with the number of blocks of a CSP stage."""
    depth = config.number("depth_mult", 1.0)
    if not 0 < depth <= 100:
        raise ConfigError(f"{config.source}: 'depth_mult' must be above 0. Found: {depth}")
    return encoder_size(config)._replace(depth=round(3 * depth))


def _gelan_entries(theirs: str, ours: str, depth: int) -> list[Entry]:
    names = (("conv1", "inputs"), ("conv2", "branch_0"), ("conv3", "branch_1"), ("conv4", "output"))
    entries = []
    for name, part in names:
        entries += convolution_entries(f"{theirs}.{name}.conv", f"{theirs}.{name}.norm", f"{ours}_{part}")
    for index in range(2):
        entries += csp_entries(f"{theirs}.csp_rep{index + 1}", f"{ours}_branch_{index}", depth, False)
    return entries


def _block_entries(theirs: str, ours: str) -> list[Entry]:
    return [
        *encoder_block_entries(theirs, ours),
        *linear(f"{theirs}.encoder_attn.sampling_offsets", f"{ours}/cross_attention/sampling_offsets"),
        *linear(f"{theirs}.encoder_attn.attention_weights", f"{ours}/cross_attention/attention_weights"),
        *linear(f"{theirs}.gateway.gate", f"{ours}/cross_attention_residual/gate"),
        *norm(f"{theirs}.gateway.norm", f"{ours}/cross_attention_residual/norm"),
    ]


def _hgnet_size(config: Config) -> HGNetV2Size:
    if config.get("backbone_config") is None:
        return SIZES["B4"]
    backbone, known = config.section("backbone_config"), SIZES["B4"]
    backbone.only("model_type", "hgnet_v2", None)
    names = ("mid_channels", "out_channels", "num_blocks", "numb_of_layers", "kernel_size")
    defaults = list(zip(*(stage[:5] for stage in known.stages), strict=True))
    columns = [integers(backbone, f"stage_{name}", default) for name, default in zip(names, defaults, strict=True)]
    light, downsamples = (
        _flags(backbone, f"stage_{name}", default)
        for name, default in (("light_block", (False, False, True, True)), ("downsample", (False, True, True, True)))
    )
    strides = integers(backbone, "stage_downsample_strides", (2, 2, 2, 2))
    if len({len(each) for each in (*columns, light, downsamples, strides)}) != 1:
        raise ConfigError(f"{backbone.source}: 'stage_out_channels' and other settings of stages differ in length.")
    used = [stride if each else None for stride, each in zip(strides, downsamples, strict=True)]
    stages = tuple(HGNetV2Stage(*stage) for stage in zip(*columns, light, used, strict=True))
    config.check_depth("backbone_config", sum(stage.num_blocks * stage.num_layers for stage in stages))
    last_stages(backbone, len(stages))
    if integers(backbone, "stem_strides", (2, 1, 1, 2, 1)) != (2, 1, 1, 2, 1):
        raise ConfigError(f"{backbone.source}: 'stem_strides' must be [2, 1, 1, 2, 1].")
    stem = integers(backbone, "stem_channels", (3, *known.stem_dims))
    inputs = (stem[-1], *(stage.hidden_dim for stage in stages[:-1]))
    if len(stem) != 3 or integers(backbone, "stage_in_channels", inputs) != inputs:
        raise ConfigError(
            f"{backbone.source}: 'stage_in_channels' must be what the stage before gives, {list(inputs)}."
        )
    return HGNetV2Size((stem[1], stem[2]), stages)


def _flags(config: Config, name: str, default: tuple[bool, ...]) -> tuple[bool, ...]:
    found = config.get(name, default)
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, bool) for each in found):
        raise ConfigError(f"{config.source}: {name!r} must be a list of true and false.")
    return tuple(found)


def _backbone_flag(config: Config) -> bool:
    """Returns whether the backbone has learnable affine blocks."""
    has_section = config.get("backbone_config") is not None
    return has_section and config.section("backbone_config").flag("use_learnable_affine_block", False)


def _hgnet(config: Config) -> keras.Model:
    size = _hgnet_size(config)
    options: dict[str, Any] = {}
    if config.get("backbone_config") is not None:
        backbone = config.section("backbone_config")
        channels = integers(backbone, "stem_channels", (3, *size.stem_dims))[0]
        options = {"num_channels": channels, "activation": backbone.activation("hidden_act", "relu")}
    frozen = config.flag("freeze_backbone_batch_norms", True)
    return HGNetV2(size, learnable_affine=_backbone_flag(config), frozen_norm=frozen, **options)


def _hgnet_entries(config: Config) -> list[Entry]:
    names = [(f"embedder.{name}", f"stem_{index}", True) for index, name in enumerate(_STEM)]
    for index, stage in enumerate(_hgnet_size(config).stages):
        theirs = f"encoder.stages.{index}"
        if stage.strides is not None:
            names.append((f"{theirs}.downsample", f"stage_{index}_downsampling", False))
        for number in range(stage.num_blocks):
            block, ours = f"{theirs}.blocks.{number}", f"stage_{index}_block_{number}"
            for layer in range(stage.num_layers):
                path = f"{block}.layers.{layer}"
                if stage.is_light:
                    names.append((f"{path}.conv1", f"{ours}_{layer}_point", False))
                names.append((f"{path}.conv2" if stage.is_light else path, f"{ours}_{layer}", True))
            names += [(f"{block}.aggregation.{each}", f"{ours}_{part}", True) for each, part in enumerate(_AGGREGATION)]
    entries, has_affine = [], _backbone_flag(config)
    for theirs, ours, is_activated in names:
        theirs = f"backbone.model.{theirs}"
        depthwise = theirs.endswith((".conv2", ".downsample"))
        entries += convolution_entries(f"{theirs}.convolution", f"{theirs}.normalization", ours, depthwise)
        if has_affine and is_activated:
            entries += [same(f"{theirs}.lab.{part}", f"{ours}_affine/{part}") for part in ("scale", "bias")]
    return entries


_STEM = ("stem1", "stem2a", "stem2b", "stem3", "stem4")
_AGGREGATION = ("squeeze", "excitation")
