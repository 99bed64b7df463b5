"""Swin: transformers\' `SwinModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import integers, patch_entries, sides
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm, same
from keras_transformer.models import Swin, SwinSize
from keras_transformer.models.vision.swin import SIZES

_TINY = SIZES["T"]


def _pooled(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the tokens and their mean."""
    mean = keras.layers.GlobalAveragePooling1D(name="pooling")(backbone.output)
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": mean}, name=backbone.name)


class SwinArchitecture(Architecture):
    """The Swin Transformer: Liu et al., arXiv 2103.14030."""

    base_prefix = "swin."
    ignored = (r"relative_position_index$", r"embeddings\.mask_token$")
    heads = {
        "Model": Head(_pooled),
        "ImageClassification": Head(
            lambda backbone, config: tasks.ImageClassifier(
                backbone, config.num_labels, pooling="mean", activation=None
            ),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("qkv_bias", True)
        return Swin(
            SwinSize(config.integer("embed_dim", 96), _depths(config), integers(config, "num_heads", _TINY.num_heads)),
            sides(config, "patch_size", 4),
            _image_size(config),
            num_channels=config.integer("num_channels", 3),
            window_size=config.integer("window_size", 7),
            mlp_ratio=config.number("mlp_ratio", 4.0),
            activation=config.activation(),
            dropout=config.number("hidden_dropout_prob", 0.0),
            attention_dropout=config.number("attention_probs_dropout_prob", 0.0),
            stochastic_depth=config.number("drop_path_rate", 0.1),
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-5),
            use_position_embedding=_has_positions(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *patch_entries("embeddings.patch_embeddings.projection", "patch_projection"),
            *norm("embeddings.norm", "embedding_norm"),
        ]
        if _has_positions(config):
            entries.append(Entry(("embeddings.position_embeddings",), ("position_embedding/embeddings",), Expanded()))
        for stage, depth in enumerate(_depths(config)):
            if stage:
                theirs = f"encoder.layers.{stage - 1}.downsample"
                entries += norm(f"{theirs}.norm", f"patch_merging_{stage}/norm")
                entries += linear(f"{theirs}.reduction", f"patch_merging_{stage}/reduction", bias=False)
            for index in range(depth):
                entries += _block(f"encoder.layers.{stage}.blocks.{index}", f"stage_{stage}_block_{index}")
        return [*entries, *norm("layernorm", "final_norm")]


def _has_positions(config: Config) -> bool:
    return config.flag("use_absolute_embeddings", False)


def _image_size(config: Config) -> tuple[int, int]:
    """Returns height and width; with a table of positions, which counts whole patches, nothing is padded."""
    image, patch = sides(config, "image_size", 224), sides(config, "patch_size", 4)
    if _has_positions(config) and any(side % part for side, part in zip(image, patch, strict=True)):
        raise ConfigError(
            f"{config.source}: with 'use_absolute_embeddings', 'image_size' {image} must divide into patches of {patch}."
        )
    return image


def _depths(config: Config) -> tuple[int, ...]:
    depths = integers(config, "depths", _TINY.num_layers)
    config.check_depth("depths", sum(depths))
    return depths


def _block(theirs: str, ours: str) -> list[Entry]:
    self_attention, table = f"{theirs}.attention.self", "relative_position_bias_table"
    return [
        *attention(
            f"{ours}/window_attention/attention",
            query=f"{self_attention}.query",
            key=f"{self_attention}.key",
            value=f"{self_attention}.value",
            output=f"{theirs}.attention.output.dense",
        ),
        same(f"{self_attention}.{table}", f"{ours}/window_attention/attention/position_bias/embeddings"),
        *norm(f"{theirs}.layernorm_before", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.layernorm_after", f"{ours}/feedforward_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
    ]
