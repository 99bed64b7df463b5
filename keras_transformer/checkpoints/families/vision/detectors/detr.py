"""DETR: transformers' `DetrModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import convolution_entries, integers, point_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm
from keras_transformer.models import DETR, DETRSize, ResNet, ResNetSize
from keras_transformer.models.vision.resnet import SIZES

_RESNET = "backbone.conv_encoder.model"


class Detr(Architecture):
    """DETR with a ResNet: Carion et al., arXiv 2005.12872. The model takes images of any size."""

    base_prefix = "model."
    ignored = (r"num_batches_tracked$",)
    heads = {
        "Model": Head(),
        "ObjectDetection": Head(
            lambda backbone, config: tasks.ObjectDetector(backbone, config.num_labels, num_class_layers=1),
            lambda config, prefix: [
                *linear("class_labels_classifier", "logits"),
                *linear("bbox_predictor.layers.0", "box_hidden_0"),
                *linear("bbox_predictor.layers.1", "box_hidden_1"),
                *linear("bbox_predictor.layers.2", "boxes"),
            ],
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        # transformers 5 gives normalized queries to the next block if this is set, unlike the published code.
        config.only("auxiliary_loss", False)
        config.only("position_embedding_type", "sine")
        config.only("dilation", False)
        width, parts = config.integer("d_model", 256), ("encoder", "decoder")
        heads = tuple(config.integer(f"{part}_attention_heads", 8) for part in parts)
        if width % 4 or any(width % each for each in heads):
            raise ConfigError(
                f"{config.source}: 'd_model' is {width}; 4 and the numbers of heads {heads} must divide it."
            )
        size = DETRSize(
            width,
            _depths(config),
            heads,
            tuple(config.integer(f"{part}_ffn_dim", 2048) for part in parts),
        )
        return DETR(
            size,
            backbone=_resnet(config),
            num_queries=config.integer("num_queries", 100),
            activation=config.activation("activation_function", "relu"),
            dropout=config.number("dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.0),
            hidden_dropout=config.number("activation_dropout", 0.0),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *_resnet_entries(config),
            *point_entries("input_projection", "feature_projection"),
            *embedding("query_position_embeddings", "object_queries"),
            *norm("decoder.layernorm", "final_norm"),
        ]
        for part, depth in zip(("encoder", "decoder"), _depths(config), strict=True):
            for index in range(depth):
                entries += _block(f"{part}.layers.{index}", f"{part}_block_{index}", part == "decoder")
        return entries


def _depths(config: Config) -> tuple[int, int]:
    encoder, decoder = (config.integer(f"{part}_layers", 6) for part in ("encoder", "decoder"))
    config.check_depth("encoder_layers", encoder)
    config.check_depth("decoder_layers", decoder)
    return encoder, decoder


def _block(theirs: str, ours: str, is_decoder: bool) -> list[Entry]:
    def projections(name, path):
        return attention(
            f"{ours}/{path}",
            query=f"{theirs}.{name}.q_proj",
            key=f"{theirs}.{name}.k_proj",
            value=f"{theirs}.{name}.v_proj",
            output=f"{theirs}.{name}.out_proj",
        )

    entries = [
        *projections("self_attn", "self_attention/attention"),
        *norm(f"{theirs}.self_attn_layer_norm", f"{ours}/mixer_residual/norm"),
    ]
    if is_decoder:
        entries += projections("encoder_attn", "cross_attention")
        entries += norm(f"{theirs}.encoder_attn_layer_norm", f"{ours}/cross_attention_residual/norm")
    return [
        *entries,
        *linear(f"{theirs}.fc1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.fc2", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]


def _is_timm(config: Config) -> bool:
    """Whether the ResNet has the names of timm, as in the published files."""
    section = config.get("backbone_config")
    return section is None or (isinstance(section, dict) and section.get("model_type") == "timm_backbone")


def _resnet(config: Config) -> keras.Model:
    if not _is_timm(config):
        backbone = config.section("backbone_config")
        backbone.only("model_type", "resnet", None)
        return ResNet(
            _size(config),
            num_channels=backbone.integer("num_channels", 3),
            activation=backbone.activation("hidden_act", "relu"),
            downsample_in_first_stage=backbone.flag("downsample_in_first_stage", False),
            downsample_in_bottleneck=backbone.flag("downsample_in_bottleneck", False),
            frozen_norm=True,
        )
    return ResNet(_size(config), num_channels=config.integer("num_channels", 3), frozen_norm=True)


def _size(config: Config) -> ResNetSize:
    if _is_timm(config):
        section = config.get("backbone_config") or {}
        source = config if section.get("backbone") is None else config.section("backbone_config")
        return source.choice("backbone", {f"resnet{name}": size for name, size in SIZES.items()}, "resnet50")
    backbone = config.section("backbone_config")
    size = ResNetSize(
        integers(backbone, "hidden_sizes", SIZES["50"].hidden_dims),
        integers(backbone, "depths", SIZES["50"].num_layers),
        backbone.choice("layer_type", {"bottleneck": True, "basic": False}, "bottleneck"),
        backbone.integer("embedding_size", 64),
    )
    config.check_depth("depths", sum(size.num_layers))
    last = [f"stage{len(size.num_layers)}"]
    if len(size.hidden_dims) != len(size.num_layers) or backbone.get("out_features", last) != last:
        raise ConfigError(
            f"{backbone.source}: 'hidden_sizes' and 'depths' must be of one length, and 'out_features' {last}."
        )
    return size


def _resnet_entries(config: Config) -> list[Entry]:
    """The convolutions and norms, by the names of timm or of transformers."""
    size, is_timm = _size(config), _is_timm(config)
    names = [("conv1", "bn1", "stem")] if is_timm else [_named("embedder.embedder", "stem")]
    count = 3 if size.is_bottleneck else 2
    is_strided = not is_timm and config.section("backbone_config").flag("downsample_in_first_stage", False)
    changes_first = is_strided or size.stem_dim != size.hidden_dims[0]
    for stage, depth in enumerate(size.num_layers):
        for index in range(depth):
            ours = f"stage_{stage}_block_{index}"
            theirs = f"layer{stage + 1}.{index}" if is_timm else f"encoder.stages.{stage}.layers.{index}"
            for number in range(count):
                convolution = (f"{theirs}.conv{number + 1}", f"{theirs}.bn{number + 1}", f"{ours}_{number}")
                names.append(convolution if is_timm else _named(f"{theirs}.layer.{number}", f"{ours}_{number}"))
            if not index and (stage or changes_first):
                projection = (f"{theirs}.downsample.0", f"{theirs}.downsample.1", f"{ours}_shortcut")
                names.append(projection if is_timm else _named(f"{theirs}.shortcut", f"{ours}_shortcut"))
    entries = []
    for kernel, normalization, ours in names:
        entries += convolution_entries(f"{_RESNET}.{kernel}", f"{_RESNET}.{normalization}", ours)
    return entries


def _named(theirs: str, ours: str) -> tuple[str, str, str]:
    return f"{theirs}.convolution", f"{theirs}.normalization", ours
