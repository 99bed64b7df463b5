"""What the call of a layer takes: its signature declares it, as in Keras."""

from __future__ import annotations

import inspect

import keras


def takes(layer: keras.layers.Layer, name: str) -> bool:
    """Returns whether the call of a layer has an argument; False for what is no layer.

    Example:

    >>> takes(keras.layers.Dropout(0.5), "training"), takes(keras.layers.Dense(2), "padding_mask")
    (True, False)
    """
    return isinstance(layer, keras.layers.Layer) and name in inspect.signature(layer.call).parameters
