"""Comparison of the weights in quantized files with those of the float files that they were made from."""

from __future__ import annotations

import math
import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from keras_transformer.export.data.weights import Dequantized, WeightPair
from keras_transformer.export.errors import WeightError
from keras_transformer.export.formats import get_format
from keras_transformer.export.quantization.options import KEPT, LEARNED, Quantization
from keras_transformer.export.verification.quantized.learned_integers import LearnedIntegers

if TYPE_CHECKING:
    import keras

# Smaller constants may be merged or left out.
_LARGEST_UNKNOWN = 8
# Rounding of scales, divisions and products in float32, as a share of a step, and of the number itself.
_SLACK, _ROUNDING = 2e-3, 1e-6
# The share of a step that float32 moves a sum of a code and an offset by, where codes are kept and not rounded.
_KEPT = 2e-5
# A lattice of few codes may leave out the largest numbers of a block: by so many steps at most.
_CLIPPED = 4.0
# Numbers that are compared at a time: each takes several times its memory.
_MOST = 2**22


class QuantizedWeightRecord(TypedDict):
    """What is known of the weights of a quantized format; see `check_quantized_weights`."""

    equal: int
    rounded: int
    computed: list[str]
    unaccounted: list[str]
    share: float
    largest_float: int


def check_quantized_weights(
    name: str,
    source: pathlib.Path,
    directory: pathlib.Path,
    files: dict[str, str],
    quantization: Quantization | None = None,
    variables: Sequence[keras.Variable] = (),
) -> QuantizedWeightRecord | None:
    """Compares the weights in the quantized files of one format with those in the float files.

    Each weight is dequantized as the graph does it, and each number must be within half a step of its own scale; a weight
    that stays float must be equal bit for bit, one in float16 must be rounded to the nearest.

    Args:
        name: name of the format.
        source: path of the folder with the float files.
        directory: path of the folder with the quantized files, of the same names.
        files: dict of signature name to path, as `Format.write` returns it.
        quantization: the `Quantization`. Where it keeps integers and scales, each number must be equal but for the rounding
            of float32; those of "learned" must all be there, and have the very same scales.
        variables: the Keras variables of the model, if it is known.

    Returns:
        Dict for the manifest: how many weights are `"equal"` bit for bit and how many `"rounded"` to codes or halves, the
        names of those that are `"computed"` (none), and of those that are `"unaccounted"`: the graph computes them in a
        way that is not known here; the `"share"` of all numbers that are rounded, and how many numbers the largest weight
        has that is not. None for a format whose quantized files are not read.

    Raises:
        WeightError: a number is further from the float weight; names the weight and the index.
        QuantizationError: a weight of "learned" is not in the file as its integers.
    """
    pairs = get_format(name).weight_pairs(source, directory, files, variables)
    if pairs is None:
        return None
    learned = None
    if quantization is not None and quantization.mode == LEARNED:
        learned = LearnedIntegers(name, quantization, [each.path for each in variables])
    found = compare(name, pairs, quantization is not None and quantization.mode in KEPT, learned)
    if learned is not None:
        learned.check_all()
    return found


def compare(
    format: str, pairs: Iterable[WeightPair], is_kept: bool = False, learned: LearnedIntegers | None = None
) -> QuantizedWeightRecord:
    """Compares pairs of weights; see `check_quantized_weights`.

    Args:
        format: name of the format, for errors.
        pairs: iterable of `WeightPair`.
        is_kept: bool. Whether the codes are those that the weights were made of.
        learned: `LearnedIntegers`, which sees each pair, or None.
    """
    equal: set[str] = set()
    rounded: set[str] = set()
    unknown: dict[str, None] = {}
    numbers = {True: 0, False: 0}
    largest = 0
    for pair in pairs:
        if pair.found is None or pair.found.values.shape != pair.expected.shape:
            if pair.expected.size > _LARGEST_UNKNOWN:
                unknown[pair.name] = None
            continue
        fault = worst_fault(pair.expected, pair.found, is_kept)
        if fault is not None:
            raise WeightError(format, pair.name, _reason(pair.found, *fault, is_kept), fault[0])
        if learned is not None:
            learned.check(pair.name, pair.expected, pair.found)
        is_float = pair.found.step is None and not pair.found.is_half
        (equal if is_float else rounded).add(pair.name)
        numbers[is_float] += pair.expected.size
        largest = max(largest, pair.expected.size if is_float else 0)
    return {
        "equal": len(equal - rounded),
        "rounded": len(rounded),
        "computed": [],
        "unaccounted": list(unknown),
        "share": numbers[False] / (sum(numbers.values()) or 1),
        "largest_float": largest,
    }


def _reason(found: Dequantized, index: tuple[int, ...], error: float, is_kept: bool) -> str:
    if found.step is not None:
        allowed = "the codes are kept, and not rounded" if is_kept else "at most 0.5 is rounding"
        return f"differs from the float weight at {list(index)} by {error:.3g} steps of its scale: {allowed}"
    kind = "the float weight, rounded to half precision," if found.is_half else "the float weight"
    return f"differs from {kind} at {list(index)} by {error:.3g}"


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
