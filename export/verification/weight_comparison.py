"""The variable of each array in the files of a format, or how it follows from several."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.lazy_array import AnyArray, LazyArrays
from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.errors import WeightError
from keras_transformer.export.verification.weight_images import (
    channel_factors_of,
    difference,
    factors_of,
    is_image,
    is_near,
    is_origin,
    is_rows_of,
    repeated_row,
)

if TYPE_CHECKING:
    from keras_transformer.export.verification.traced_constants import TracedConstants

# A converter may drop or merge smaller arrays, such as scalars.
_FEWEST, _LARGEST_UNKNOWN = 1, 8
# Converters round the constants that they compute in another order than TensorFlow.
_ULPS = 8
_SIMILAR = 1e-4
_START = 8
# An array of unknown origin with this share of the numbers of a variable is taken for a changed variable.
_RESEMBLING, _FEWEST_TO_RESEMBLE = 0.3, 32
_SLIGHTLY, _ROUNDED_TWICE = 0.01, 1e-6


class WeightComparison:
    """The comparison of one format.

    Args:
        format: its name.
        expected: dict of name to values, which may be lazy: the variables that must be in the files.
        variables: the same of all variables.
        constants: a `TracedConstants` for each signature.
    """

    def __init__(
        self,
        format: str,
        expected: Mapping[str, AnyArray],
        variables: Mapping[str, AnyArray],
        constants: Sequence[TracedConstants],
    ) -> None:
        self._format, self._constants = format, constants
        self._expected, self._variables = LazyArrays(expected), LazyArrays(variables)
        self._found: set[str] = set()
        self._folded: set[str] = set()
        self._unknown: list[StoredWeight] = []
        self._computed_vectors: dict[int, list[tuple[set[str], np.ndarray]]] = {}
        self._by_size: dict[int, list[str]] = {}
        self._read_by: dict[str, set[str]] = {}
        for part in constants:
            for name, operations in part.readers.items():
                for operation in operations:
                    self._read_by.setdefault(operation, set()).add(name)
        for name, array in variables.items():
            self._by_size.setdefault(array.size, []).append(name)

    def add(self, stored: StoredWeight) -> None:
        """Finds the variable of one array.

        Raises:
            WeightError: the file names the array after a variable with other values.
        """
        origin = stored.origin
        if origin is not None and is_origin(stored, self._variables[origin]):
            self._found.add(origin)
        elif origin is not None and stored.is_named_exactly:
            self._refuse(stored, origin)
        elif not self._has_image(stored) and _has_content(stored.values):
            self._unknown.append(stored)

    def _has_image(self, stored: StoredWeight) -> bool:
        found = next((each for each in self._candidates(stored) if is_image(stored, self._variables[each])), None)
        if found is not None:
            self._found.add(found)
        return found is not None

    def _candidates(self, stored: StoredWeight) -> list[str]:
        """The variables that an array may be: by the operations that read it, if the file has names of these."""
        names = self._by_size.get(stored.values.size, [])
        read = {name for each in stored.readers for name in self._read_by.get(each, ())}
        return [name for name in names if name in read] or names

    def finish(self) -> dict[str, Any]:
        """The record for the manifest.

        Raises:
            WeightError: a variable is missing, or an array is a changed variable.
        """
        self._find_copies()
        self._find_repeated_rows()
        if self._missing() or any(map(_is_large, self._unknown)):
            self._fold()
        for stored in self._unknown:
            self._refuse_resembling(stored)
        # Converters leave out sums with zeros and products with ones, as of a model that was never trained.
        self._folded.update(name for name in self._missing() if not _varies(self._expected[name]))
        for name in self._missing():
            self._refuse_missing(name)
        unknown = [*self._missing(), *(each.name for each in self._unknown if _is_large(each))]
        return {
            "equal": len(self._found & self._expected.keys()),
            "computed": sorted(self._folded - self._found),
            "unaccounted": list(dict.fromkeys(unknown)),
        }

    def _refuse_resembling(self, stored: StoredWeight) -> None:
        """Raises for an array of unknown origin that is a changed variable."""
        if stored.values.size < _FEWEST_TO_RESEMBLE:
            return
        for name in self._by_size.get(stored.values.size, ()):
            array = self._variables[name]
            if _has_content(array) and self._is_changed(stored, array):
                self._refuse(stored, name)

    def _refuse_missing(self, name: str) -> None:
        """Raises for a variable that no array follows from, unless a converter may have computed one with it."""
        if any(name in part.computed_with for part in self._constants):
            return
        array = self._variables[name]
        found = [stored for stored in self._unknown if stored.values.size == array.size]
        if not found and not any(map(_is_large, self._unknown)):
            self._refuse(None, name)
        for stored in found:
            if self._is_changed(stored, array) or is_near(stored, array) or self._is_another(stored):
                self._refuse(stored, name)

    def _missing(self) -> list[str]:
        names = self._expected.keys() - self._found - self._folded
        return [name for name in self._expected if name in names and self._expected[name].size > _FEWEST]

    def _find_copies(self) -> None:
        """Variables with the values of another one may be stored once."""
        for name in self._missing():
            array = self._expected[name]
            same = (each for each in self._by_size[array.size] if each in self._found)
            stored = StoredWeight(name, array)
            if any(is_image(stored, self._variables[each]) for each in same):
                self._found.add(name)

    def _find_repeated_rows(self) -> None:
        """Takes one row in place of an array that repeats it."""
        for stored in list(self._unknown):
            row = repeated_row(stored)
            if row is not None and row.values.size in self._by_size and _has_content(row.values):
                self._unknown = [each for each in self._unknown if each is not stored]
                self.add(row)

    def _fold(self) -> None:
        """Finds arrays among what TensorFlow computes from weights and constants, and cut tables."""
        for stored in list(self._unknown):
            self._account(stored, [name for name, array in self._variables.items() if is_rows_of(stored, array)])
            self._account(stored, self._multiplied(stored), is_exact=True)
            self._account(stored, self._multiplied_twice(stored))
        self._find_multiplied_channels()
        sizes = {each.values.size for each in self._unknown}
        for part in self._constants:
            for names, array in part.values(sizes):
                if any(
                    is_image(StoredWeight("", array), self._variables[name])
                    for name in names
                    if name in self._variables
                ):
                    continue  # It must be equal bit for bit.
                for stored in list(self._unknown):
                    if stored.values.size == array.size and is_image(
                        _rounded(stored), array.astype(stored.values.dtype)
                    ):
                        self._account(stored, names or [""])

    def _multiplied(self, stored: StoredWeight) -> list[str]:
        """The variable that is multiplied by a constant of the model, if the products are equal bit for bit."""
        known = np.array(sorted(self._scalars))
        for name in self._candidates(stored):
            array = self._variables[name]
            for factor in factors_of(stored, array):
                near = known[np.isclose(known, factor, rtol=_SIMILAR, atol=0)]
                if any(is_image(stored, array * array.dtype.type(each)) for each in near):
                    return [name]
        return []

    def _multiplied_twice(self, stored: StoredWeight) -> list[str]:
        """The variable that is multiplied by two numbers of the model or their reciprocals, up to rounding."""
        known = np.array([each for each in self._scalars if each])
        either = np.concatenate([known, 1 / known])
        products = (either[:, None] * either).ravel()
        bound = StoredWeight(stored.name, stored.values, bound=_ROUNDED_TWICE * np.abs(stored.values))
        for name in self._candidates(stored):
            array = self._variables[name]
            for factor in factors_of(stored, array):
                is_one = np.isclose([1.0, *known], factor, rtol=_ROUNDED_TWICE, atol=0).any()  # It must be exact.
                is_product = np.isclose(products, factor, rtol=_ROUNDED_TWICE, atol=0).any()
                if is_product and not is_one and is_image(bound, array * array.dtype.type(factor)):
                    return [name]
        return []

    @functools.cached_property
    def _scalars(self) -> set[float]:
        """The numbers of the model by which a weight may be multiplied: constants and weights of one element."""
        found = {each for part in self._constants for each in part.scalars}
        return found | {float(self._variables[name].reshape(())) for name in self._by_size.get(1, ())}

    def _find_multiplied_channels(self) -> None:
        """Kernels of which each channel is multiplied by an element of a vector, and biases too, as by a layer scale."""
        for stored in list(self._unknown):
            for name in self._candidates(stored):
                for matrix, factors in channel_factors_of(stored, self._variables[name]):
                    for names, vector in self._vectors(factors.size):
                        product = matrix * vector.reshape(factors.shape)
                        if np.allclose(vector, factors.reshape(-1), rtol=_SIMILAR, atol=0) and is_image(
                            stored, product
                        ):
                            self._account(stored, [name, *names], is_exact=True)
            if stored.values.size == stored.values.shape[-1]:
                self._find_product_of_vectors(stored)

    def _find_product_of_vectors(self, stored: StoredWeight) -> None:
        vectors = self._vectors(stored.values.size)
        values, matrix = (
            stored.values.reshape(-1),
            np.stack([vector for _, vector in vectors]) if vectors else np.zeros((0, 1)),
        )
        start = slice(0, _START)
        for number, (names, vector) in enumerate(vectors):
            for other in np.flatnonzero((matrix[:, start] * vector[start] == values[start]).all(axis=1)):
                if other < number and np.array_equal(matrix[other] * vector, values):
                    self._account(stored, {*names, *vectors[other][0]}, is_exact=True)

    def _vectors(self, size: int) -> list[tuple[set[str], np.ndarray]]:
        """The vectors of a size, with the variables that they follow from: weights and what is computed from them."""
        if size not in self._computed_vectors:
            found = [({name}, self._variables[name]) for name in self._by_size.get(size, ())]
            found += [pair for part in self._constants for pair in part.values({size})]
            vectors = [(names, array.reshape(-1)) for names, array in found if array.dtype == np.float32]
            self._computed_vectors[size] = vectors
        return self._computed_vectors[size]

    def _account(self, stored: StoredWeight, names: Iterable[str], is_exact: bool = False) -> None:
        """Takes an array off the unknown ones, because it follows from some variables."""
        if names and any(each is stored for each in self._unknown):
            self._unknown = [each for each in self._unknown if each is not stored]
            (self._found if is_exact else self._folded).update(name for name in names if name)

    def _is_changed(self, stored: StoredWeight, array: np.ndarray) -> bool:
        """Whether an array has many numbers of a variable, or almost a multiple by a number of the model.

        Other multiples are by constants that a converter computes, such as the product of two in a preprocessing.
        """
        known = np.array([1.0, *self._scalars])
        is_scaled = any(np.isclose(known, each, rtol=_SLIGHTLY, atol=0).any() for each in factors_of(stored, array))
        return is_scaled or difference(stored, array)[0] > _RESEMBLING

    def _is_another(self, stored: StoredWeight) -> bool:
        """Whether an array is a variable that the operations which read it do not read in the model."""
        return any(is_image(stored, self._variables[each]) for each in self._by_size[stored.values.size])

    def _refuse(self, stored: StoredWeight | None, name: str) -> None:
        array = self._variables[name]
        share, index = (0.0, ()) if stored is None else difference(stored, array)
        if stored is None or (not share and not factors_of(stored, array)):
            raise WeightError(self._format, name, "is not in the file")
        raise WeightError(
            self._format, name, f"differs from the model at {list(index)}: {share:.3%} of its numbers are equal", index
        )


def _has_content(values: np.ndarray) -> bool:
    """Whether an array has numbers that could come from weights: floats of more than two values, or few floats."""
    if values.dtype.kind != "f" or not _varies(values):
        return False
    return values.size <= _LARGEST_UNKNOWN or bool(((values != values.min()) & (values != values.max())).any())


def _varies(values: np.ndarray) -> bool:
    return values.size > 1 and bool(values.min() != values.max())


def _is_large(stored: StoredWeight) -> bool:
    return stored.values.size > _LARGEST_UNKNOWN


def _rounded(stored: StoredWeight) -> StoredWeight:
    """The array with a bound for other roundings of a computed constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound = _ULPS * np.spacing(np.abs(stored.values).max())
    return StoredWeight(stored.name, stored.values, bound=bound if stored.bound is None else bound + stored.bound)
