"""Layers that compute the same of equal inputs and equal weights."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence

import keras

_NAMES = ("name", "build_config")


def key_of(layer: keras.layers.Layer, parts: Sequence[keras.layers.Layer]) -> Hashable:
    """Returns what layers that compute the same have in common; None for a layer whose config does not tell.

    Args:
        layer: `keras.layers.Layer`.
        parts: the layers in it, at any depth.
    """
    if isinstance(layer, keras.Model) or not layer.built or not layer.variables:
        return None
    if any("call" in vars(each) for each in (layer, *parts)):  # It was replaced, for this object alone.
        return None
    config = _config_of(layer)
    if config is None:
        return None
    # An attribute of a part may have changed since the layer was built, which only the part's own config tells.
    configs = (config, *map(_config_of, parts))
    return type(layer), configs, tuple((tuple(each.shape), str(each.dtype)) for each in layer.variables)


def _config_of(layer: keras.layers.Layer) -> str | None:
    """Returns the config of a layer without names; None for a layer that has none."""
    try:
        return json.dumps(_without_names(keras.saving.serialize_keras_object(layer)), sort_keys=True)
    except Exception:  # The `get_config` of a user's layer runs here.
        return None


def _without_names(config: object) -> object:
    if isinstance(config, dict):
        return {key: _without_names(value) for key, value in config.items() if key not in _NAMES}
    return [_without_names(each) for each in config] if isinstance(config, (list, tuple)) else config
