"""Comparison of the outputs of an artifact with those of the Keras model."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from keras_transformer.export.errors import ParityError

# The largest difference allowed on an output whose rounding was not measured, as a share of its scale.
UNMEASURED = 1e-5
# How many times the largest movement of a block a difference may be. The files of SmolLM2 reach 2.5.
FACTOR = 6.0
# Units in the last place of an element that are always allowed.
_UNITS = 4.0
_ULP = 2.0**-23
# TensorFlow takes smaller numbers than 1.2e-38 for 0 on a CPU, runtimes compute with them, and multiply the results.
_DENORMAL = 1e-35
# So many units of a half precision may a model differ by whose rounding was not measured, as a share of its scale.
_UNMEASURED_UNITS = 16.0
_SCALE_FLOOR = 1e-6
# So many values next to the middle between two steps may be rounded the other way, whatever was measured.
_FEWEST_STEPS = 4
_SENTINELS_FROM, _EXTREME = 1e8, 1e37
# Blocks are judged apart: rows of the last axis, or of as many last axes as have so many elements.
_LEAST = 16


@dataclasses.dataclass(frozen=True)
class Limit:
    """What the outputs of an artifact are held to.

    Args:
        tolerance: largest difference as a share of each output's scale; None for what the rounding of the model explains.
        ceiling: largest difference that rounding can explain, as a share of the scale of a block.
        is_quantized: bool. Whether integers, such as chosen tokens, may differ.
        unit: the rounding of a reference of another precision, as a multiple of that of float32.
    """

    tolerance: float | None = None
    ceiling: float = math.inf
    is_quantized: bool = False
    unit: float = 1.0

    def allowed(self, expected: np.ndarray, rounding: np.ndarray | None, scale: float) -> np.ndarray:
        """The largest difference allowed, for each element.

        Args:
            expected: finite float64 array of the reference, with 0 for sentinels.
            rounding: the movement of each block, or None where it was not measured.
            scale: how far the output varies.

        Returns:
            float64 array that can be broadcast to `expected`.
        """
        if self.tolerance is not None or rounding is None:
            share = UNMEASURED if self.tolerance is None else self.tolerance
            if self.unit > 1:
                share = max(share, _UNMEASURED_UNITS * _ULP * self.unit)
            return np.asarray(share * scale)
        moved = FACTOR * self.unit * rounding.astype("float64")
        if math.isfinite(self.ceiling):
            moved = np.minimum(moved, self.ceiling * block_maximum(np.abs(expected)))
        return moved + _UNITS * _ULP * self.unit * np.abs(expected) + _DENORMAL


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far one output is from the reference.

    Args:
        difference: largest absolute difference of floats, or number of other elements that differ; NaN for values that
            are not finite where the reference's are, or the other way round.
        scale: how far the reference varies: see `varies`; its largest absolute value where that is not known.
        share: the largest share of what is allowed; up to 1 is accepted.
        allowed: what is allowed where that is.
        there: the difference there.
    """

    difference: float
    scale: float
    share: float
    allowed: float
    there: float = 0.0

    @property
    def ratio(self) -> float:
        """The difference as a share of the scale."""
        return self.difference / self.scale

    @property
    def is_accepted(self) -> bool:
        """Whether the difference is within the limit."""
        return self.share <= 1.0


def compare(
    got: np.ndarray,
    expected: np.ndarray,
    rounding: np.ndarray | None = None,
    limit: Limit | None = None,
    scale: float | None = None,
) -> Difference:
    """Compares one output with its reference.

    Blocks of the last axes are judged apart, each by its own rounding. Sentinels, such as the -1e9 of a mask, the least
    float, an infinity or NaN, must be equal, and are no part of the scale.

    Args:
        got: array of a runtime.
        expected: array of the Keras model, of the same shape.
        rounding: what `measure_rounding` found for this output, or None.
        limit: `Limit`; by default what rounding explains.
        scale: how far the output varies over all probes, where that is less than its largest absolute value here.

    Returns:
        A `Difference`.

    Raises:
        TypeError: the arrays are complex.

    Example:

    >>> compare(np.float32([1.0, 2.5]), np.float32([1.0, 2.0]), limit=Limit(tolerance=0.5)).share
    0.5
    """
    limit = limit or Limit()
    if expected.dtype.kind == "c":
        raise TypeError("complex outputs cannot be compared")
    if expected.size == 0:
        return Difference(0.0, 1.0, 0.0, 0.0)
    if expected.dtype == np.int8:
        return _compare_levels(got, expected, rounding, limit)
    if expected.dtype.kind != "f":
        return _compare_exact(got, expected, rounding, limit)
    got, expected = got.astype("float64"), expected.astype("float64")
    is_sentinel = sentinels(expected)
    same = _are_same(got[is_sentinel], expected[is_sentinel])
    got, expected = np.where(is_sentinel, 0.0, got), np.where(is_sentinel, 0.0, expected)
    differences = np.abs(got - expected)
    scale = min(scale or math.inf, _scale(expected))
    if not same or not np.isfinite(differences).all():
        return Difference(math.nan, scale, math.inf, 0.0)
    allowed = np.broadcast_to(limit.allowed(expected, rounding, scale), expected.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(differences == 0.0, 0.0, differences / allowed)
    worst = np.unravel_index(shares.argmax(), shares.shape)
    found = (float(each[worst]) for each in (shares, allowed, differences))
    return Difference(float(differences.max()), scale, *found)


def parity_error(format: str, output: str, probe: str, found: Difference) -> ParityError:
    """The error of an output that is not accepted.

    Args:
        format: name of the format.
        output: name of the output.
        probe: label of the probe.
        found: `Difference`.

    Returns:
        A `ParityError`.
    """
    if math.isinf(found.share):
        return ParityError(format, output, probe, found.difference, found.scale, found.allowed / found.scale)
    # The difference that exceeds its limit most, and not a larger one elsewhere that is allowed.
    hint = f", {found.share:.3g} times what is allowed there"
    return ParityError(format, output, probe, found.there, found.scale, found.allowed / found.scale, hint=hint)


def _are_same(got: np.ndarray, expected: np.ndarray) -> bool:
    """Whether sentinels are equal; of finite ones, to the last places."""
    is_finite = np.isfinite(expected)
    distance = np.abs(got[is_finite] - expected[is_finite])
    is_close = (distance <= _UNITS * _ULP * np.abs(expected[is_finite])).all()
    return bool(is_close and np.array_equal(got[~is_finite], expected[~is_finite], equal_nan=True))


def _compare_exact(got: np.ndarray, expected: np.ndarray, rounding: np.ndarray | None, limit: Limit) -> Difference:
    """Compares integers, bools and texts, which must be equal where no other rounding of the model changes them."""
    differ = got != expected
    count = float(np.sum(differ))
    if expected.dtype.kind != "U":
        count = float(np.abs(got.astype("float64") - expected.astype("float64")).max()) if count else 0.0
    may_differ = limit.is_quantized or (rounding is not None and not np.any(differ & (rounding == 0)))
    scale = 1.0 if expected.dtype.kind == "U" else _scale(expected.astype("float64"))
    return Difference(count, scale, 0.0 if may_differ or not count else math.inf, 0.0)


def _compare_levels(got: np.ndarray, expected: np.ndarray, rounding: np.ndarray | None, limit: Limit) -> Difference:
    """Compares values that the model rounds to int8, as a cache of keys and values has them: by one step at most, and in
    not many more places than the rounding of the model moves."""
    steps = np.abs(got.astype("int32") - expected)
    moved = 0 if rounding is None else int(np.count_nonzero(rounding))
    allowed = expected.size if limit.is_quantized else _FEWEST_STEPS + FACTOR * moved
    share = np.count_nonzero(steps) / allowed if steps.max() <= 1 or limit.is_quantized else math.inf
    largest = float(steps.max())
    return Difference(largest, _scale(expected.astype("float64")), float(share), 1.0, largest)


def sentinels(array: np.ndarray) -> np.ndarray:
    """Which elements are no numbers but marks: infinities, extreme floats, and one digit times a power of ten from 1e8.

    Example:

    >>> sentinels(np.array([-1e9, -np.inf, 123456789.0, 5.0]))
    array([ True,  True, False, False])
    """
    size = np.abs(array)
    found = np.asarray(~np.isfinite(array))  # Of a number by itself, too.
    large = np.isfinite(array) & (size >= _SENTINELS_FROM)
    if large.any():
        values = size[large]
        power = 10.0 ** np.floor(np.log10(values) + 1e-6)
        digit = np.rint(values / power)
        is_round = np.abs(values - digit * power) <= 1e-6 * values
        found[large] = is_round | (values >= _EXTREME)
    return found


def varies(arrays: Sequence[np.ndarray]) -> float | None:
    """How far an output varies over its rows and over all probes: half the range of a channel, the largest of all.

    Args:
        arrays: the output on each probe, with channels on the last axis. Sentinels do not count.

    Returns:
        float; None where it has less than two rows, or no floats.

    Example:

    >>> varies([np.array([[5.0, 1.0]]), np.array([[5.0, 1.5], [5.0, 1.25]])])
    0.25
    """
    if not arrays or arrays[0].dtype.kind != "f":
        return None
    widths = {each.shape[-1] if each.ndim > 1 else 1 for each in arrays}
    width = widths.pop() if len(widths) == 1 else 1  # A last axis of several lengths is none of channels.
    rows = np.concatenate([each.reshape(-1, width or 1) for each in arrays])
    if len(rows) < 2:
        return None
    regular = ~sentinels(rows)
    lowest = np.min(rows, axis=0, where=regular, initial=np.inf).astype("float64")
    highest = np.max(rows, axis=0, where=regular, initial=-np.inf).astype("float64")
    return float(np.max(np.where(highest > lowest, highest - lowest, 0.0), initial=0.0)) / 2


def _scale(expected: np.ndarray) -> float:
    return max(float(np.abs(expected).max(initial=0.0)), _SCALE_FLOOR)


def scale_of(expected: np.ndarray) -> float:
    """The largest absolute value of an output, without sentinels.

    Example:

    >>> scale_of(np.array([-1e9, 3.0]))
    3.0
    """
    values = expected.astype("float64") if expected.dtype.kind in "fiub" else np.zeros(expected.shape)
    return _scale(np.where(sentinels(values), 0.0, values))


def _block_axes(array: np.ndarray) -> tuple[int, ...]:
    """The last axes that make up one block."""
    axes: list[int] = []
    count = 1
    for axis in reversed(range(array.ndim)):
        if count >= _LEAST:
            break
        count *= array.shape[axis]
        axes.append(axis)
    return tuple(axes)


def block_maximum(array: np.ndarray) -> np.ndarray:
    """The largest value of each block, with the axes of the block kept as sizes of 1.

    Example:

    >>> block_maximum(np.arange(64.0).reshape(2, 32)).ravel()
    array([31., 63.])
    """
    return array.max(axis=_block_axes(array), keepdims=True, initial=0)
