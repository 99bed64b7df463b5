"""The length of a probe that goes past every window, block, chunk and bucket of a model."""

from collections.abc import Iterator
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.spec.vocabulary import longest_sequence
from keras_transformer.utils.errors import library_exceptions

# Past the tiles and tables of 64 and 128 positions that are usual, where a model names none.
_USUAL = 131
_MOST = 1100
_WORDS = ("window", "block_size", "chunk_size", "chunk_length", "segment_length", "max_distance", "bucket_size")


def reaching_length(model: keras.Model) -> int:
    """The length of a sequence that reaches what only long sequences reach.

    That is the longest sequence that the model takes, if this is short enough, and otherwise more than twice the largest
    window, block, chunk or segment that the config of a layer names, up to 1,100 tokens. A layer of recordings names its own
    length in samples, `probe_length`.

    Args:
        model: a built Keras model.

    Example:

    >>> x = keras.Input((None, 8))
    >>> reaching_length(keras.Model(x, keras.layers.Dense(2)(x)))
    131
    """
    layers = keras_private.flatten_layers(model)
    sizes = [size for layer in layers for size in _sizes(_config(layer))]
    length = min(max(_USUAL, 2 * max(sizes, default=0) + 3), _MOST)
    length = max(length, *(getattr(layer, "probe_length", 0) for layer in layers), 0)
    most = longest_sequence(model)
    if most is None:
        return length
    return most if most <= _MOST else length


def _config(layer: keras.layers.Layer) -> Any:
    try:
        return layer.get_config()
    except library_exceptions():  # A layer that cannot be saved can still be exported.
        return {}


def _sizes(config: Any) -> Iterator[int]:
    """All sizes in a config, at any depth."""
    if isinstance(config, dict):
        for name, value in config.items():
            is_size = isinstance(value, int) and not isinstance(value, bool)
            if is_size and isinstance(name, str) and any(word in name for word in _WORDS):
                yield value
            else:
                yield from _sizes(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _sizes(value)
