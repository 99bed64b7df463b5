"""Comparison of one weight of a quantized file, dequantized, with the float weight."""

from __future__ import annotations

import math
import operator

import numpy as np

from keras_transformer.export.data.weights import Dequantized

# Rounding of scales, divisions and products in float32, as a share of a step, and of the number itself.
_SLACK, _ROUNDING = 2e-3, 1e-6
# The share of a step that float32 moves a sum of a code and an offset by, where codes are kept and not rounded.
_KEPT = 2e-5
# A lattice of few codes may leave out the largest numbers of a block: by so many steps at most.
_CLIPPED = 4.0
# Numbers that are compared at a time: each takes several times its memory.
_MOST = 2**22


def worst_fault(
    expected: np.ndarray, found: Dequantized, is_kept: bool = False
) -> tuple[tuple[int, ...], float] | None:
    """Where a quantized weight is further from the float weight than rounding to its steps explains.

    Args:
        expected: float array.
        found: `Dequantized` of the same shape.
        is_kept: bool. Whether its codes are those that the float weight was made of: nothing may be rounded to a step.

    Returns:
        `(index, error)`: the index with the largest error, and that error in steps (in its own unit without steps); None
        where every number is within half a step.

    Example:

    >>> worst_fault(np.array([0.3, 1.0]), Dequantized(np.array([0.5, 2.0]), np.float32(0.5)))
    ((1,), 2.0)
    """
    worst, step = None, max(_MOST // max(math.prod(expected.shape[1:]), 1), 1)
    for start in range(0, len(expected) if expected.ndim else 1, step):
        part = slice(start, start + step) if expected.ndim else ()
        fault = _fault(expected[part], found.map(operator.itemgetter(part)), is_kept)
        if fault is not None and (worst is None or fault[1] > worst[1]):
            index, error = fault
            worst = (start + index[0], *index[1:]) if index else index, error
    return worst


def _fault(expected: np.ndarray, found: Dequantized, is_kept: bool) -> tuple[tuple[int, ...], float] | None:
    if found.step is None:
        wanted = expected.astype("float16").astype("float32") if found.is_half else expected
        wrong = np.asarray(found.values != wanted) & ~(np.isnan(found.values) & np.isnan(wanted))
        if not wrong.any():
            return None
        error = np.where(wrong, np.abs(found.values.astype("float64") - wanted), -1.0)
        return _worst(error)
    error = found.values - expected
    step = np.broadcast_to(np.asarray(found.step, "float32"), error.shape)
    if found.ends is not None and not is_kept:
        # Below the lowest code, the code is too high; above the highest, too low.
        clipped = found.ends * error < 0
        error = np.where(clipped, np.sign(error) * np.maximum(np.abs(error) - _CLIPPED * step, 0), error)
    error = np.abs(error)
    bound = step * np.float32(_KEPT if is_kept else 0.5 + _SLACK) + np.float32(_ROUNDING) * np.abs(expected)
    if (error <= bound).all():  # NaN is not.
        return None
    return _worst(error / step)


def _worst(error: np.ndarray) -> tuple[tuple[int, ...], float]:
    place = int(np.nan_to_num(error, nan=np.inf).argmax())
    index = np.unravel_index(place, error.shape)
    return tuple(int(each) for each in index), float(error[index])
