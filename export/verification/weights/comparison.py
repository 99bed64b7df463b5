"""The variable of each array in the files of a format, or how it follows from several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from keras_transformer.export.data.lazy_array import AnyArray, LazyArrays
from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.verification.weights.explanations import EXPLANATIONS, copies, one_row, same
from keras_transformer.export.verification.weights.faults import is_another, is_changed, is_near, weight_error
from keras_transformer.export.verification.weights.model_weights import ModelWeights

if TYPE_CHECKING:
    from keras_transformer.export.verification.weights.traced_constants import TracedConstants

# A converter may drop or merge smaller arrays, such as scalars.
_FEWEST, _LARGEST_UNKNOWN = 1, 8
# Arrays of fewer numbers resemble each other by chance.
_FEWEST_TO_RESEMBLE = 32


class WeightRecord(TypedDict):
    """What the manifest says of the weights of a format; see `check_weights`."""

    equal: int
    computed: list[str]
    unaccounted: list[str]


class WeightComparison:
    """The comparison of one format: arrays are added one at a time; those that are no variable are explained at the end.

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
        self._format, self._expected = format, LazyArrays(expected)
        self._model = ModelWeights(variables, constants)
        self._equal: set[str] = set()
        self._computed: set[str] = set()
        self._unknown: list[StoredWeight] = []

    def add(self, stored: StoredWeight) -> None:
        """Finds the variable of one array.

        Raises:
            WeightError: the file names the array after a variable with other values.
        """
        name = same(stored, self._model)
        if name is not None:
            self._equal.add(name)
        elif stored.origin is not None and stored.is_named_exactly:
            self._refuse(stored.origin, stored)
        elif _has_content(stored.values):
            self._unknown.append(stored)

    def finish(self) -> WeightRecord:
        """The record for the manifest.

        Raises:
            WeightError: a variable is missing, or an array is a changed variable.
        """
        self._equal.update(copies(self._missing(), self._equal, self._model))
        self._take_repeated_rows()
        if self._unknown and (self._missing() or any(map(_is_large, self._unknown))):
            self._explain()
            self._equal.update(copies(self._missing(), self._equal, self._model))
        for stored in self._unknown:
            self._refuse_resembling(stored)
        # Converters leave out sums with zeros and products with ones, as of a model that was never trained.
        self._computed.update(name for name in self._missing() if not _varies(self._expected[name]))
        for name in self._missing():
            self._refuse_missing(name)
        unknown = [*self._missing(), *(each.name for each in self._unknown if _is_large(each))]
        return {
            "equal": len(self._equal & self._expected.keys()),
            "computed": sorted(self._computed - self._equal),
            "unaccounted": list(dict.fromkeys(unknown)),
        }

    def _missing(self) -> list[str]:
        names = self._expected.keys() - self._equal - self._computed
        return [name for name in self._expected if name in names and self._expected[name].size > _FEWEST]

    def _take_repeated_rows(self) -> None:
        """Takes one row in place of an array that repeats it."""
        for stored in list(self._unknown):
            row = one_row(stored)
            if row is not None and self._model.of_size(row.values.size) and _has_content(row.values):
                self._take(stored)
                self.add(row)

    def _explain(self) -> None:
        """Tries one explanation after another on the arrays that are left."""
        for explanation in EXPLANATIONS:
            for stored, names in explanation.find(tuple(self._unknown), self._model):
                if self._take(stored):
                    (self._equal if explanation.is_exact else self._computed).update(names)

    def _take(self, stored: StoredWeight) -> bool:
        """Takes an array off the unknown ones; False if it is none of them any more."""
        count = len(self._unknown)
        self._unknown = [each for each in self._unknown if each is not stored]
        return len(self._unknown) < count

    def _refuse_resembling(self, stored: StoredWeight) -> None:
        """Raises for an array of unknown origin that is a changed variable."""
        if stored.values.size < _FEWEST_TO_RESEMBLE:
            return
        for name in self._model.of_size(stored.values.size):
            array = self._model.variables[name]
            if _has_content(array) and is_changed(stored, array, self._model):
                self._refuse(name, stored)

    def _refuse_missing(self, name: str) -> None:
        """Raises for a variable that no array follows from, unless a converter may have computed one with it."""
        if self._model.computes_with(name):
            return
        array = self._model.variables[name]
        found = [stored for stored in self._unknown if stored.values.size == array.size]
        if not found and not any(map(_is_large, self._unknown)):
            self._refuse(name)
        for stored in found:
            if is_changed(stored, array, self._model) or is_near(stored, array) or is_another(stored, self._model):
                self._refuse(name, stored)

    def _refuse(self, name: str, stored: StoredWeight | None = None) -> None:
        raise weight_error(self._format, name, self._model.variables[name], stored)


def _has_content(values: np.ndarray) -> bool:
    """Whether an array has numbers that could come from weights: floats of more than two values, or few floats."""
    if values.dtype.kind != "f" or not _varies(values):
        return False
    return values.size <= _LARGEST_UNKNOWN or bool(((values != values.min()) & (values != values.max())).any())


def _varies(values: np.ndarray) -> bool:
    return values.size > 1 and bool(values.min() != values.max())


def _is_large(stored: StoredWeight) -> bool:
    return stored.values.size > _LARGEST_UNKNOWN
