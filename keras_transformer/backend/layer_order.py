"""The nested layers of a layer, in the order of creation or of the graph."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private


def layers_in_order(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns all layers within `layer`, at any depth, each once and before its own parts.

    Keras's own list reverses the parts of each nested layer: the last block of a backbone comes first.

    Args:
        layer: a `keras.layers.Layer` or `keras.Model`, which is not in the list.

    Returns:
        list of `keras.layers.Layer`.

    Example:

    >>> import keras
    >>> inner = keras.Sequential([keras.layers.ReLU(name="b"), keras.layers.ReLU(name="c")], name="a")
    >>> [each.name for each in layers_in_order(keras.Sequential([inner]))]
    ['a', 'b', 'c']
    """
    found: dict[int, keras.layers.Layer] = {}
    _collect(layer, found)
    return list(found.values())


def _collect(layer: keras.layers.Layer, found: dict[int, keras.layers.Layer]) -> None:
    for part in keras_private.direct_layers(layer):
        if id(part) not in found:
            found[id(part)] = part
            _collect(part, found)
