"""Ternary kernels of exported models. Packing them is lossless: see `onnx.ternary` and `tflite.ternary`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import keras

# Tolerance of a whole model. A ternary layer computes the same bits in every runtime, but its inputs come from norms and
# softmax: a float32 rounding error moves a number across a half, which then is rounded to another of 127 steps.
TOLERANCE = 0.1

_SCALE = "ternary_scale"


def has_ternary_layers(model: keras.Model) -> bool:
    """Whether a Keras model has a ternary layer."""
    import keras

    from keras_transformer.backend import keras_private
    from keras_transformer.layers.ternary import has_ternary_kernel

    return isinstance(model, keras.layers.Layer) and any(map(has_ternary_kernel, keras_private.flatten_layers(model)))


def kernel_paths(variables: Iterable[Any]) -> set[str]:
    """The paths of the frozen ternary kernels among Keras variables: those with a scale.

    Example:

    >>> import types
    >>> kernel_paths([types.SimpleNamespace(path=path) for path in ("a/kernel", "a/ternary_scale", "b/kernel")])
    {'a/kernel'}
    """
    paths = {variable.path for variable in variables}
    return {path for path in paths if f"{path.rpartition('/')[0]}/{_SCALE}" in paths and path.endswith("/kernel")}


def is_ternary(array: np.ndarray) -> bool:
    """Whether all numbers of an array are -1, 0 or 1."""
    return array.dtype == np.float32 and bool(np.isin(array, (-1.0, 0.0, 1.0)).all())


def pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Packs 2-bit codes four to a byte, the first in the lowest bits: `(..., n)` to `(..., n / 4)`.

    Example:

    >>> pack_pairs(np.array([1, 2, 3, 0, 0, 0, 0, 1], "uint8")).tolist()
    [57, 64]
    """
    return codes[..., 0::4] | codes[..., 1::4] << 2 | codes[..., 2::4] << 4 | codes[..., 3::4] << 6
