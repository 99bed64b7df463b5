"""How vectors of a file follow from several of a model: explanations, as those of `explanations`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.verification.weights.model_weights import Explained, ModelWeights

# Numbers by which products of vectors are looked for.
_START = 8
# The rounding of a product of a vector and a kernel, as a share of the sizes of its summands.
_ROUNDING = 2.0**-21


def product_of_vectors(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A vector times another one, element by element, as a bias times a layer scale: bit for bit."""
    for stored in unknown:
        if stored.values.size == stored.values.shape[-1]:
            names = _names_of_vectors(stored.values.reshape(-1), model)
            if names is not None:
                yield stored, names


def _names_of_vectors(values: np.ndarray, model: ModelWeights) -> set[str] | None:
    """What two vectors follow from whose product has some values."""
    vectors = model.vectors(values.size)
    matrix = np.stack([vector for _, vector in vectors]) if vectors else np.zeros((0, 1))
    start = slice(0, _START)
    for number, (names, vector) in enumerate(vectors):
        for other in np.flatnonzero((matrix[:, start] * vector[start] == values[start]).all(axis=1)):
            if other < number and np.array_equal(matrix[other] * vector, values):
                return names | vectors[other][0]
    return None


def carried_bias(unknown: Sequence[StoredWeight], model: ModelWeights) -> Explained:
    """A bias of a product, and what a former bias adds to it: `b₂ + b₁ K`, up to rounding.

    The converter of TFLite makes that of a sum in front of a product. A number of the model may multiply it, such as the
    scale of attention.
    """
    for stored in unknown:
        if stored.values.size == stored.values.shape[-1]:
            names = _names_of_carried(stored.values.reshape(-1).astype("float64"), model)
            if names is not None:
                yield stored, names


def _names_of_carried(values: np.ndarray, model: ModelWeights) -> set[str] | None:
    """What a kernel, a former bias and a bias follow from that give some values."""
    nothing: tuple[set[str], np.ndarray] = set(), np.zeros_like(values)
    biases = [nothing, *model.vectors(values.size)]
    added = np.stack([bias for _, bias in biases]).astype("float64")
    sizes = np.abs(added)
    for name, length in _kernels(values.size, model):
        formers = model.vectors(length)
        if not formers:
            continue
        kernel = model.variables[name].reshape(length, -1).astype("float64")
        stacked = np.stack([vector for _, vector in formers]).astype("float64")
        products = zip(formers, stacked @ kernel, np.abs(stacked) @ np.abs(kernel), strict=True)
        for (former, _), carried, size in products:
            matches = _are_multiples(values, carried + added, size + sizes, model)
            if matches.any():
                return {name} | former | biases[int(matches.argmax())][0]
    return None


def _kernels(width: int, model: ModelWeights) -> Iterator[tuple[str, int]]:
    """The kernels whose last axes have as many numbers as a vector, and how many the axes before them have."""
    for length in (each for each in model.sizes if each > 1):
        for name in model.of_size(length * width):
            if length in np.cumprod(model.variables[name].shape)[:-1]:
                yield name, length


def _are_multiples(values: np.ndarray, rows: np.ndarray, sizes: np.ndarray, model: ModelWeights) -> np.ndarray:
    """For each row whether values are that, or a multiple by a number of the model, up to the rounding of sums of a size."""
    numbers = np.arange(len(rows))
    peaks = np.abs(rows).argmax(axis=1)
    tops = rows[numbers, peaks]
    factors = np.divide(values[peaks], tops, out=np.zeros_like(tops), where=tops != 0)
    known = np.array([1.0, *model.scalars])
    near = known[np.abs(known - factors[:, None]).argmin(axis=1)]
    is_known = np.abs(factors - near) * np.abs(tops) <= _ROUNDING * sizes[numbers, peaks] * np.abs(near)
    near = near[:, None]
    return is_known & (np.abs(values - near * rows) <= _ROUNDING * sizes * np.abs(near)).all(axis=1)
