"""YOLOS: transformers' `YolosModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import (
    block_entries,
    patch_entries,
    sides,
    vit_attention,
    vit_options,
    vit_size,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.families.vision.vit import pooled_class_token, pooler_entries
from keras_transformer.checkpoints.layouts import Expanded, Fused
from keras_transformer.checkpoints.mapping import Entry, linear, norm, same
from keras_transformer.models import YOLOS

_HEAD_LAYERS = 3


def _head_entries(config: Config, prefix: str) -> list[Entry]:
    entries = []
    for theirs, label, last in (("class_labels_classifier", "class", "logits"), ("bbox_predictor", "box", "boxes")):
        ours = [*(f"{label}_hidden_{index}" for index in range(_HEAD_LAYERS - 1)), last]
        for index, name in enumerate(ours):
            entries += linear(f"{theirs}.layers.{index}", name)
    return entries


class Yolos(Architecture):
    """YOLOS: Fang et al., arXiv 2106.00666. The model takes images of any size."""

    base_prefix = "vit."
    heads = {
        "Model": Head(pooled_class_token, pooler_entries),
        "ObjectDetection": Head(
            lambda backbone, config: tasks.ObjectDetector(
                backbone, config.num_labels, num_class_layers=_HEAD_LAYERS, num_box_layers=_HEAD_LAYERS
            ),
            _head_entries,
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        patch, image = config.integer("patch_size", 16), sides(config, "image_size", (512, 864))
        if min(image) < patch:
            raise ConfigError(f"{config.source}: 'image_size' {image} is smaller than a patch of {patch}.")
        return YOLOS(
            vit_size(config),
            patch,
            num_channels=config.integer("num_channels", 3),
            grid_size=(image[0] // patch, image[1] // patch),
            num_detection_tokens=config.integer("num_detection_tokens", 100),
            positions_in_blocks=_has_positions_in_blocks(config),
            attention=vit_attention(config),
            **vit_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        table, number = "position_embeddings", config.integer("num_hidden_layers", 12)
        entries = [
            same("embeddings.cls_token", "patch_embedding/class_embedding"),
            Entry(("embeddings.detection_tokens",), ("detection_tokens/embeddings",), Expanded()),
            Entry((f"embeddings.{table}",), ("position_embedding/embeddings",), Expanded()),
            *patch_entries("embeddings.patch_embeddings.projection", "patch_embedding/projection"),
            *block_entries(config),
        ]
        if _has_positions_in_blocks(config):
            tables = tuple(f"position_embedding_{index}/embeddings" for index in range(1, number))
            entries.append(Entry((f"encoder.mid_{table}",), tables, Fused(Expanded(2))))
        return [*entries, *norm("layernorm", "final_norm")]


def _has_positions_in_blocks(config: Config) -> bool:
    """One block has none, whatever the setting says."""
    return config.flag("use_mid_position_embeddings", True) and config.integer("num_hidden_layers", 12) > 1
