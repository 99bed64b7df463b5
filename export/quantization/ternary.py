"""Ternary kernels in files: which weights they are. Packing them loses nothing: see `onnx.ternary` and `tflite.ternary`."""

from typing import Any

import numpy as np

# What a whole model may differ by. A ternary layer computes the same to the last bit in every runtime, but what enters it
# comes from norms and softmax: a number that float32's noise puts on the other side of a half is rounded to the next of
# 127 steps, and changes what comes after it.
TOLERANCE = 0.1

_SCALE = "ternary_scale"


def has_ternary_layers(model: Any) -> bool:
    """Whether a Keras model has a ternary layer."""
    import keras

    from keras_transformer.backend import keras_private
    from keras_transformer.layers.ternary import has_ternary_kernel

    return isinstance(model, keras.layers.Layer) and any(map(has_ternary_kernel, keras_private.flatten_layers(model)))


def kernel_paths(variables):
    """The paths of the frozen ternary kernels among Keras variables: those that have a scale beside them.

    Example:

    >>> import types
    >>> kernel_paths([types.SimpleNamespace(path=path) for path in ("a/kernel", "a/ternary_scale", "b/kernel")])
    {'a/kernel'}
    """
    paths = {variable.path for variable in variables}
    return {path for path in paths if f"{path.rpartition('/')[0]}/{_SCALE}" in paths and path.endswith("/kernel")}


def is_ternary(array):
    """Whether all numbers of an array are -1, 0 or 1."""
    return array.dtype == np.float32 and bool(np.isin(array, (-1.0, 0.0, 1.0)).all())


def pack_pairs(codes):
    """2-bit codes four to a byte, the first lowest: `(..., n)` to `(..., n / 4)`.

    Example:

    >>> pack_pairs(np.array([1, 2, 3, 0, 0, 0, 0, 1], "uint8")).tolist()
    [57, 64]
    """
    return codes[..., 0::4] | codes[..., 1::4] << 2 | codes[..., 2::4] << 4 | codes[..., 3::4] << 6
