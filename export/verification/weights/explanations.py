"""How the arrays of a file follow from the variables of a model: what converters do to a weight, one explanation each.

`same`, `one_row` and `copies` are asked first. The further `EXPLANATIONS` are tried in their order on the arrays that are
left. Each is a generator: it is given the arrays without an explanation, and yields those that it explains with the names
of the variables that they follow from. An array that none explains is a fault, see `faults`, or is unaccounted for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.operations.recurrence import LSTM_GATES
from keras_transformer.export.verification.weights.factors import (
    TWO_ROUNDINGS,
    channel_factors_of,
    factors_of,
    is_among,
    two_channel_factors_of,
)
from keras_transformer.export.verification.weights.images import bits, is_image, is_origin
from keras_transformer.export.verification.weights.model_weights import Explained, ModelWeights
from keras_transformer.export.verification.weights.vectors import carried_bias, product_of_vectors

# A sampled factor is taken for a number of the model up to this share; the product must then be equal bit for bit.
_FACTOR = 1e-4
# As `_FACTOR`, for a vector whose elements multiply channels.
_CHANNELS = 1e-4
# Three roundings of float32, and those of the vectors themselves, as a share of the result.
_TWO_CHANNELS = 1e-6
# Converters round the constants that they compute in another order than TensorFlow: units in the last place.
_ULPS = 8


def same(stored: StoredWeight, model: ModelWeights) -> str | None:
    """The variable that an array is, bit for bit.

    Converters write a weight with its axes merged, split or transposed. If the file names it after a variable, it must be
    that one; with the exact name and the shape of the variable, no axis may move.
    """
    if stored.origin is not None and is_origin(stored, model.variables[stored.origin]):
        return stored.origin
    if stored.origin is not None and stored.is_named_exactly:
        return None
    return next((each for each in model.candidates(stored) if is_image(stored, model.variables[each])), None)


def one_row(stored: StoredWeight) -> StoredWeight | None:
    """The row that an array repeats among rows of zeros, as a converter writes the choice between a vector and zeros.

    Example:

    >>> table = StoredWeight("table", np.array([[3.0, 4.0], [0.0, 0.0], [3.0, 4.0]]))
    >>> one_row(table).values.tolist()
    [3.0, 4.0]
    """
    if stored.values.ndim < 2 or not stored.values.size:
        return None
    rows = stored.values.reshape(-1, stored.values.shape[-1])
    others = rows[rows.any(axis=1)]
    if len(rows) == 1 or not len(others) or not np.array_equal(others, np.broadcast_to(others[0], others.shape)):
        return None
    return dataclasses.replace(stored, values=others[0])


def copies(missing: Iterable[str], found: Collection[str], model: ModelWeights) -> Iterator[str]:
    """Variables with the values of another one, which is in the file: converters store equal constants once."""
    for name in missing:
        array = model.variables[name]
        stored = StoredWeight(name, array)
        if any(is_image(stored, model.variables[each]) for each in model.of_size(array.size) if each in found):
            yield name


def rows(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A run of rows of a table: a signature of a fixed length needs no more of them."""
    for stored in unknown:
        names = [name for name, array in model.variables.items() if is_rows_of(stored, array)]
        if names:
            yield stored, names


def is_rows_of(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array is a run of rows of a table, bit for bit."""
    values = stored.values
    if array.ndim < 2 or not 0 < values.size < array.size or values.dtype != array.dtype:
        return False
    for table in (array.reshape(-1, array.shape[-1]), array.reshape(len(array), -1)):
        width = table.shape[1]
        if values.size % width or stored.bound is not None:
            continue
        found = values.reshape(-1, width)
        for start in np.flatnonzero((table[: len(table) - len(found) + 1] == found[0]).all(axis=1)):
            if np.array_equal(bits(table[start : start + len(found)]), bits(found)):
                return True
    return False


def factor(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A weight that a number of the model multiplies, such as the scale of attention: in one rounding, bit for bit.

    A weight that a number divides, as of pixels, is multiplied by the rounded reciprocal.
    """
    for stored in unknown:
        name = next((each for each in model.candidates(stored) if _is_product(stored, each, model)), None)
        if name is not None:
            yield stored, [name]


def _is_product(stored: StoredWeight, name: str, model: ModelWeights) -> bool:
    array = model.variables[name]
    for each in factors_of(stored, array):
        near = np.concatenate([_near(each, model), 1 / _near(1 / each, model)])
        if any(is_image(stored, array * array.dtype.type(number)) for number in near):
            return True
    return False


def _near(number: float, model: ModelWeights) -> np.ndarray:
    """The numbers of the model that a sampled factor may be."""
    return model.scalars[np.isclose(model.scalars, number, rtol=_FACTOR, atol=0)]


def two_factors(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A weight that two numbers of the model or their reciprocals multiply, which converters join: up to two roundings.

    A multiple by a single number, or by none, must be exact: it is `factor`, or `same`.
    """
    known = model.scalars[model.scalars != 0]
    either = np.concatenate([known, 1 / known])
    ones, products = np.array([1.0, *known]), (either[:, None] * either).ravel()
    for stored in unknown:
        bound = StoredWeight(stored.name, stored.values, bound=TWO_ROUNDINGS * np.abs(stored.values))
        for name in model.candidates(stored):
            array = model.variables[name]
            factors = [each for each in factors_of(stored, array) if not is_among(each, ones)]
            if any(is_among(each, products) and is_image(bound, array * array.dtype.type(each)) for each in factors):
                yield stored, [name]
                break


def channels(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A kernel whose channels the elements of a vector multiply, such as a norm or a layer scale that is folded into it."""
    for stored in unknown:
        for name in model.candidates(stored):
            names = _names_of_factors(stored, name, model)
            if names is not None:
                yield stored, [name, *names]
                break


def _names_of_factors(stored: StoredWeight, name: str, model: ModelWeights) -> set[str] | None:
    """What the vector follows from that multiplies the channels of a variable, if the products are equal bit for bit."""
    for matrix, factors in channel_factors_of(stored, model.variables[name]):
        for names, vector in model.vectors(factors.size):
            product = matrix * vector.reshape(factors.shape)
            if np.allclose(vector, factors.reshape(-1), rtol=_CHANNELS, atol=0) and is_image(stored, product):
                return names
    return None


def two_channels(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A kernel between a normalization of its input channels and a norm of its output channels: up to three roundings.

    A number may multiply it as well, such as the scale of pixels.
    """
    for stored in unknown:
        bound = StoredWeight(stored.name, stored.values, bound=_TWO_CHANNELS * np.abs(stored.values))
        for name in model.candidates(stored):
            products = two_channel_factors_of(stored, model.variables[name])
            found = next((each for part in products for each in _names_of_both(bound, *part, model)), None)
            if found is not None:
                yield stored, [name, *found]
                break


def _names_of_both(
    stored: StoredWeight, kernel: np.ndarray, factors: np.ndarray, model: ModelWeights
) -> Iterator[set[str]]:
    """What two vectors follow from that multiply the output and the input channels of a kernel.

    The input channels may have none, behind a number such as the scale of pixels.
    """
    known = model.scalars[model.scalars != 0]
    numbers = np.concatenate([[1.0], known, 1 / known])
    outputs = _multiples(model.vectors(factors.shape[0]), factors[:, 0, 0])
    inputs = _multiples(model.vectors(factors.shape[2]), factors[0, 0])
    if not is_among(factors[0, 0, 0], numbers):  # A multiple by a number alone must be exact.
        ones: tuple[set[str], np.ndarray] = set(), np.ones(int(factors.shape[2]))
        inputs += _multiples([ones], factors[0, 0])
    for (names, left), (others, right) in itertools.product(outputs, inputs):
        both = left[:, None, None] * right
        number = float(factors[0, 0, 0] / both[0, 0, 0])
        if is_among(number, numbers) and is_image(stored, (kernel * (both * number)).astype(kernel.dtype)):
            yield names | others


def _multiples(
    vectors: Iterable[tuple[set[str], np.ndarray]], factors: np.ndarray
) -> list[tuple[set[str], np.ndarray]]:
    """Vectors, or the reciprocals of vectors, of which factors are a multiple."""
    found: list[tuple[set[str], np.ndarray]] = []
    for names, vector in vectors:
        if vector.all():
            for each in (vector.astype("float64"), 1 / vector.astype("float64")):
                if np.allclose(factors / each, factors[0] / each[0], rtol=_TWO_CHANNELS, atol=0):
                    found.append((names, each))
    return found


def constant(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """What the graph computes from weights and constants alone, which converters evaluate: equal up to their rounding.

    A value that is one of its own variables, under another layout, does not count: it must be `same`. Values are computed
    one at a time, and only of the sizes that are looked for.
    """
    for names, array in model.computed({each.values.size for each in unknown}):
        origins = [model.variables[name] for name in names if name in model.variables]
        if any(is_image(StoredWeight("", array), each) for each in origins):
            continue
        for stored in unknown:
            if stored.values.size == array.size and is_image(_rounded(stored), array.astype(stored.values.dtype)):
                yield stored, names


def _rounded(stored: StoredWeight) -> StoredWeight:
    """The array with a bound for other roundings of a computed constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound = _ULPS * np.spacing(np.abs(stored.values).max())
    return StoredWeight(stored.name, stored.values, bound=bound if stored.bound is None else bound + stored.bound)


def recurrent_weight(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A weight of a recurrent layer as an operator of ONNX reads it, bit for bit.

    The gates of an LSTM are in another order, and a bias has the zeros behind it that are added to the product with the
    state.
    """
    for stored in unknown:
        size = stored.values.size
        names = [*model.of_size(size), *(each for each in model.of_size(size // 2) if size % 2 == 0)]
        for name in names:
            if any(is_image(stored, each) for each in _recurrent_forms(model.variables[name], size)):
                yield stored, [name]
                break


def _recurrent_forms(array: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """A weight with the gates in the order of ONNX; if that is half of a size, with zeros behind it, and so as it is."""
    zeros = np.zeros(size - array.size, array.dtype)
    if zeros.size:
        yield np.concatenate([array.reshape(-1), zeros])
    if array.ndim and array.shape[-1] % len(LSTM_GATES) == 0:
        gates = np.split(array, len(LSTM_GATES), axis=-1)
        found = np.concatenate([gates[number] for number in LSTM_GATES], axis=-1)
        yield np.concatenate([found.reshape(-1), zeros]) if zeros.size else found


class Explanation(NamedTuple):
    """An explanation, and what it shows.

    Args:
        find: generator of the arrays that it explains.
        is_exact: bool. Whether the variables are in the file bit for bit, and not only what is computed from them.
    """

    find: Callable[[Sequence[StoredWeight], ModelWeights], Explained]
    is_exact: bool


EXPLANATIONS = (
    Explanation(rows, is_exact=False),
    Explanation(factor, is_exact=True),
    Explanation(two_factors, is_exact=False),
    Explanation(channels, is_exact=True),
    Explanation(two_channels, is_exact=False),
    Explanation(product_of_vectors, is_exact=True),
    Explanation(recurrent_weight, is_exact=True),
    Explanation(constant, is_exact=False),
    # Last, since it compares what is left with all pairs of vectors behind each kernel.
    Explanation(carried_bias, is_exact=False),
)
