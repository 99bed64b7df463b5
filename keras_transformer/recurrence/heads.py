"""Heads of recurrences, in float32."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor

# Added to the squared length of queries and keys.
_LENGTH_EPSILON = 1e-6


def float_heads(x: Tensor, num_heads: int) -> Tensor:
    """Splits `(B, T, N · H)` into heads, float32 `(B, T, N, H)`."""
    return ops.cast(ops.reshape(x, (-1, ops.shape(x)[1], num_heads, x.shape[2] // num_heads)), "float32")


def unit_length(x: Tensor, epsilon: float = _LENGTH_EPSILON) -> Tensor:
    """Returns `x / √(Σ x² + ε)`. TFLite's converter would drop the epsilon of a sum, but not that of a mean."""
    width = x.shape[-1]
    return ops.rms_normalization(x, axis=-1, epsilon=epsilon / width) * width**-0.5
