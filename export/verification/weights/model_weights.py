"""What an array of a file may follow from: the variables of a model, and what its graphs compute from them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.lazy_array import AnyArray, LazyArrays
from keras_transformer.export.data.weights import StoredWeight

if TYPE_CHECKING:
    from keras_transformer.export.verification.weights.traced_constants import TracedConstants

# The names of the variables that an array follows from, and its values.
Computed = tuple[set[str], np.ndarray]
# Arrays of a file with the names of the variables that each follows from.
Explained = Iterator[tuple[StoredWeight, Collection[str]]]


class ModelWeights:
    """The variables of a model by size and by reader, and the constants of its signatures.

    Args:
        variables: dict of name to values, which may be lazy.
        constants: a `TracedConstants` for each signature.

    Attributes:
        variables: the same dict; each array is read when it is looked up.
    """

    def __init__(self, variables: Mapping[str, AnyArray], constants: Sequence[TracedConstants]) -> None:
        self.variables, self._constants = LazyArrays(variables), constants
        self._vectors: dict[int, list[Computed]] = {}
        self._by_size: dict[int, list[str]] = {}
        self._read_by: dict[str, set[str]] = {}
        for name, array in variables.items():
            self._by_size.setdefault(array.size, []).append(name)
        for part in constants:
            for name, operations in part.readers.items():
                for operation in operations:
                    self._read_by.setdefault(operation, set()).add(name)

    @property
    def sizes(self) -> Collection[int]:
        """How many numbers variables have."""
        return self._by_size.keys()

    def of_size(self, size: int) -> Sequence[str]:
        """Names of the variables of as many numbers."""
        return self._by_size.get(size, ())

    def candidates(self, stored: StoredWeight) -> Sequence[str]:
        """The variables that an array may be: by the operations that read it, if the file has names of these."""
        names = self.of_size(stored.values.size)
        read = {name for each in stored.readers for name in self._read_by.get(each, ())}
        return [name for name in names if name in read] or names

    def computes_with(self, name: str) -> bool:
        """Whether further constants are computed from a variable, or a loop or a branch reads it."""
        return any(name in part.computed_with for part in self._constants)

    @functools.cached_property
    def scalars(self) -> np.ndarray:
        """The numbers of the model by which a weight may be multiplied: constants and weights of one element."""
        found = {each for part in self._constants for each in part.scalars}
        return np.array(sorted(found | {float(self.variables[name].reshape(())) for name in self.of_size(1)}))

    def computed(self, sizes: set[int]) -> Iterator[Computed]:
        """Yields what the graphs compute from weights and constants, one array of one of some sizes at a time."""
        for part in self._constants:
            yield from part.values(sizes)

    def vectors(self, size: int) -> list[Computed]:
        """The vectors of a size: weights, and what is computed from them."""
        if size not in self._vectors:
            found = [({name}, self.variables[name]) for name in self.of_size(size)]
            found += self.computed({size})
            self._vectors[size] = [(names, each.reshape(-1)) for names, each in found if each.dtype == np.float32]
        return self._vectors[size]
