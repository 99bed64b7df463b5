"""Rows of floats as int8 with a scale for each row: a quarter of the memory of float32, and 4 bytes a row."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Cache, Tensor

# Behind the name of a quantized tensor of a cache: the name of its scales.
SCALE = "_scale"
_LARGEST = 127.0
_SMALLEST_SCALE = 1e-12


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds each row to multiples of its largest absolute value / 127.

    Args:
        x: float `(..., W)`.

    Returns:
        `(levels, scale)`: int8 `(..., W)`, and float32 `(..., 1)`.

    Example:

    >>> levels, scale = quantize_rows([[0.0, -12.7, 0.04]])
    >>> levels.numpy().tolist(), round(float(scale[0, 0]), 6)
    ([[0, -127, 0]], 0.1)
    """
    x = ops.cast(x, "float32")
    scale = ops.max(ops.abs(x), axis=-1, keepdims=True) / _LARGEST
    return ops.cast(ops.round(x / ops.maximum(scale, _SMALLEST_SCALE)), "int8"), scale


def check_scales(cache: Cache) -> None:
    """Raises `ValueError` for a cache without int8 tensors, or with one without scales: a state that has no rows."""
    rounded = [name for name, tensor in cache.items() if "int8" in str(tensor.dtype)]
    others = [name for name in rounded if f"{name}{SCALE}" not in cache] if rounded else list(cache)
    if others:
        raise ValueError(f"{others[0]!r} is a state, not a cache of keys and values, which int8 is for.")


def dequantize_rows(levels: Tensor, scale: Tensor) -> Tensor:
    """Returns float32 `(..., W)`: what `quantize_rows` rounded."""
    return ops.cast(levels, "float32") * scale
