"""Names of classes that a model has without being told."""

from __future__ import annotations

import keras

from keras_transformer.export.bundle.metadata import CLASS_NAMES
from keras_transformer.utils.types import JsonObject


def known_metadata(model: keras.Model) -> JsonObject:
    """The metadata that the checkpoint of a model gives: the names of its classes, where its config has them.

    Example:

    >>> known_metadata(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]))
    {}
    """
    config = getattr(getattr(model, "checkpoint", None), "config", None)
    names = getattr(config, "class_names", [])
    outputs = keras.tree.flatten(getattr(model, "output", None)) if names else []
    fits = len(outputs) == 1 and len(names) == outputs[0].shape[-1]
    return {CLASS_NAMES: names} if fits else {}
