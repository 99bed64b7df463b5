"""The tensors of a model's cache: which of them grow with the sequence, and the size of their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import keras
import ml_dtypes
import numpy as np

from keras_transformer.utils.types import Cache, Shape

# The width, then for the small floats the bits of exponent and mantissa: "float8_e4m3fn".
_NUMERIC = re.compile(r"(?:u?int|b?float|b?complex)(\d+)(?:_e\d+m\d+\w*)?")


def split_cache(
    init_cache: Callable[[int, int], Cache],
) -> tuple[dict[str, tuple[int, int, str]], dict[str, tuple[Shape, str]]]:
    """Splits the tensors of a model's cache into those that grow with the sequence and those of fixed size.

    Args:
        init_cache: function of batch size and max length, as `Stepwise.init_cache`.

    Returns:
        Two dicts with the names of tensors as keys: `(heads, width, dtype)` for those that keep all tokens, `(B, K, L, W)`,
        and `(shape of a row, dtype)` for those of fixed size.

    Raises:
        ValueError: a tensor is neither.
    """
    probes = [init_cache(1, length) for length in (3, 5)]
    tensors, states = {}, {}
    for name, tensor in probes[0].items():
        shape, longer = (tuple(probe[name].shape) for probe in probes)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if shape == longer:
            states[name] = (shape[1:], dtype)
        elif len(shape) == 4 and (shape[2], longer[2]) == (3, 5) and shape[:2] == longer[:2] and shape[3] == longer[3]:
            tensors[name] = (shape[1], shape[3], dtype)
        else:
            raise ValueError(
                f"A cache tensor must keep all tokens, (B, K, L, W), or have a fixed size. {name!r} has shape {shape} for 3 "
                f"tokens and {longer} for 5."
            )
    return tensors, states


def slot_axes(init_cache: Callable[[int, int], Cache]) -> dict[str, tuple[int, ...]]:
    """Returns the axes of each tensor of a model's cache that grow with the sequence; none for a state of fixed size.

    Args:
        init_cache: function of batch size and max length, as `Stepwise.init_cache`.

    Example:

    >>> slot_axes(lambda batch, length: {"key": np.zeros((batch, 2, length, 4)), "state": np.zeros((batch, 7))})
    {'key': (2,), 'state': ()}
    """
    short, long = (init_cache(1, length) for length in (3, 5))
    pairs = {name: zip(tensor.shape, long[name].shape, strict=True) for name, tensor in short.items()}
    return {name: tuple(axis for axis, (a, b) in enumerate(pair) if a != b) for name, pair in pairs.items()}


def bits(dtype: str) -> int:
    """Returns the width in bits of one number of `dtype`, as in "bfloat16", "float8_e4m3fn", "int4" or "bool".

    Raises:
        ValueError: neither numpy nor ml_dtypes has a numeric type of this name.
    """
    if dtype == "bool":
        return 8
    match = _NUMERIC.fullmatch(dtype)
    if match is None or not (hasattr(np, dtype) or hasattr(ml_dtypes, dtype)):
        raise ValueError(f"Unknown numeric dtype: {dtype!r}")
    return int(match[1])
