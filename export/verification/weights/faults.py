"""Which variable an array without an explanation is a changed copy of: what a fault does to a weight."""

from __future__ import annotations

import numpy as np

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.errors import WeightError
from keras_transformer.export.verification.weights.factors import SIMILAR, factors_of
from keras_transformer.export.verification.weights.images import (
    SAMPLES,
    equal,
    equal_samples,
    is_alike,
    is_image,
    numbers_at,
    positions_in,
    transposed,
)
from keras_transformer.export.verification.weights.model_weights import ModelWeights

# An array with this share of the numbers of a variable is a changed variable.
_RESEMBLING = 0.3
# It is one too if it is a multiple by nearly a number of the model.
_SLIGHTLY = 0.01
# The relative rounding error of bfloat16. Numbers that arrays have in common by chance.
_HALF, _COMMON = 2.0**-8, (-1.0, 0.0, 1.0)
# What share of the numbers an array has in common with a variable that it is made of, and of how many at least.
_MOVED, _MOST, _FEWEST = 0.3, 0.7, 8


def is_changed(stored: StoredWeight, array: np.ndarray, model: ModelWeights) -> bool:
    """Whether an array has many numbers of a variable, or almost a multiple by a number of the model.

    Other multiples are by constants that a converter computes, such as the product of two in a preprocessing.
    """
    known = np.array([1.0, *model.scalars])
    is_scaled = any(np.isclose(known, each, rtol=_SLIGHTLY, atol=0).any() for each in factors_of(stored, array))
    return is_scaled or difference(stored, array)[0] > _RESEMBLING


def is_another(stored: StoredWeight, model: ModelWeights) -> bool:
    """Whether an array is a variable that the operations which read it do not read in the model."""
    return any(is_image(stored, model.variables[each]) for each in model.of_size(stored.values.size))


def is_near(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether an array is a variable or a multiple of lower precision, has its numbers at other places, or most of them.

    Example:

    >>> kernel = np.linspace(-1, 1, 64, dtype="float32")
    >>> is_near(StoredWeight("half", kernel.astype("float16").astype("float32")), kernel)
    True
    >>> is_near(StoredWeight("moved", np.roll(kernel, 1)), kernel), is_near(StoredWeight("other", kernel**2), kernel)
    (True, False)
    """
    if not is_alike(stored, array):
        return False
    positions = positions_in(array, 16 * SAMPLES)
    sample = numbers_at(stored.values, positions)
    special = sample[~np.isin(sample, _COMMON)]
    if special.size and np.isin(special, array).mean() > _MOVED:
        return True
    values = stored.values.reshape(-1)
    for each in transposed(array):
        flat, part = each.reshape(-1), numbers_at(each, positions)
        ratio = _ratio(sample, part)
        if _is_multiple_in_part(sample, part) or _is_less_precise(values, flat, 1.0):
            return True
        if array.size >= _FEWEST and _is_less_precise(sample, part, ratio) and _is_less_precise(values, flat, ratio):
            return True
    return False


def _ratio(values: np.ndarray, array: np.ndarray) -> float:
    """The median of the ratios to an array."""
    is_number = array != 0
    return float(np.median(values[is_number] / array[is_number])) if is_number.any() else 0.0


def _is_less_precise(values: np.ndarray, array: np.ndarray, factor: float) -> bool:
    """Whether an array is a multiple of another one, up to the rounding of half precision."""
    return bool(factor and (np.abs(values - factor * array) <= _HALF * np.abs(factor * array)).all())


def _is_multiple_in_part(values: np.ndarray, array: np.ndarray) -> bool:
    """Whether most numbers, but not all, are the same multiple of those of an array."""
    is_number = array != 0
    if is_number.sum() < _FEWEST:
        return False
    ratios = values[is_number].astype("float64") / array[is_number]
    middle = np.median(ratios)
    share = (np.abs(ratios - middle) <= SIMILAR * np.abs(middle)).mean()
    return bool(middle and _MOST <= share < 1)


def difference(stored: StoredWeight, array: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """How much of a variable a stored array contains.

    Returns:
        `(share, index)`: the share of equal numbers under the best order of the axes, and the first index of the
        variable where they differ.
    """
    if not is_alike(stored, array):
        return 0.0, (0,) * array.ndim
    orders = list(transposed(array))
    best = max(range(len(orders)), key=lambda number: float(equal_samples(stored, orders[number], 16 * SAMPLES).mean()))
    is_equal = equal(stored, orders[best])
    wrong = np.flatnonzero(~is_equal)
    indices = np.unravel_index(wrong[0] if wrong.size else 0, orders[best].shape)
    numbers = np.broadcast_to(np.arange(1), array.shape) if best == 0 else np.arange(array.size).reshape(array.shape)
    index = int(wrong[0] if best == 0 and wrong.size else list(transposed(numbers))[best][indices])
    return float(is_equal.mean()), tuple(map(int, np.unravel_index(index, array.shape)))


def weight_error(format: str, name: str, array: np.ndarray, stored: StoredWeight | None) -> WeightError:
    """The error of a variable that no array of the files is, or that one is a changed copy of.

    Args:
        format: name of the format.
        name: name of the variable.
        array: its values.
        stored: the array of the file, or None if there is none.
    """
    share, index = (0.0, ()) if stored is None else difference(stored, array)
    if stored is None or (not share and not factors_of(stored, array)):
        return WeightError(format, name, "is not in the file")
    return WeightError(
        format, name, f"differs from the model at {list(index)}: {share:.3%} of its numbers are equal", index
    )
