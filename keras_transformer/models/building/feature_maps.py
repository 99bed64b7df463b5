"""The feature maps of hierarchical backbones."""

from __future__ import annotations

import keras

# The last layer of a stage has this name, and the number of the stage.
PREFIX = "feature_map_"


def feature_maps(backbone: keras.Model) -> list[keras.KerasTensor]:
    """The feature maps of a backbone, one for each stage, `(B, rows, columns, channels)`, the largest first.

    Args:
        backbone: a Functional model with layers "feature_map_0", "feature_map_1" and so on, as `models.SegFormer`.

    Raises:
        ValueError: it has none.
    """
    layers = {layer.name: layer for layer in backbone.layers}
    maps: list[keras.KerasTensor] = []
    while f"{PREFIX}{len(maps)}" in layers:
        maps.append(layers[f"{PREFIX}{len(maps)}"].output)
    if not maps:
        raise ValueError(f"{backbone.name!r} has no feature maps, as models.SegFormer has.")
    return maps
