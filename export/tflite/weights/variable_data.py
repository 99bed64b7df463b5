"""The content of a buffer that is a Keras variable in another layout, read when it is needed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.graph.traced import lazy_array

if TYPE_CHECKING:
    import keras

    from keras_transformer.utils.types import ArrayLike, Shape


@dataclasses.dataclass(frozen=True)
class VariableData:
    """A float32 variable, reshaped, transposed and multiplied. As an array it is its bytes.

    Args:
        variable: Keras variable.
        steps: tuple of `("reshape", shape)` and `("transpose", permutation)`.
        factor: float32 array, by which the values in this layout are multiplied.
    """

    variable: keras.Variable
    steps: tuple[tuple[str, Shape], ...] = ()
    factor: np.ndarray = dataclasses.field(default_factory=lambda: np.ones((), "float32"))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in this layout."""
        # An array that repeats one byte has the shape without the memory.
        return self._laid_out(np.broadcast_to(np.int8(0), self.variable.shape)).shape

    @property
    def key(self) -> str:
        """Text that is equal for equal content."""
        return f"{id(self.variable)} {self.steps} {self.factor.tobytes().hex()}"

    def reshaped(self, shape: Shape) -> VariableData:
        """The variable with another shape, which may have one -1."""
        return dataclasses.replace(self, steps=(*self.steps, ("reshape", tuple(map(int, shape)))))

    def transposed(self, permutation: Shape) -> VariableData:
        """The variable with its axes in another order."""
        turn = ("transpose", tuple(map(int, permutation)))
        is_undone = self.steps[-1:] == (turn,) and turn[1] == (1, 0)
        return dataclasses.replace(self, steps=self.steps[:-1] if is_undone else (*self.steps, turn))

    def times(self, factor: ArrayLike) -> VariableData:
        """The variable multiplied, in its last layout."""
        return dataclasses.replace(self, factor=np.asarray(self.factor * np.asarray(factor, "float32")))

    def __len__(self) -> int:
        return 4 * int(np.prod(self.variable.shape))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        array = self._laid_out(np.asarray(lazy_array(self.variable)))
        array = np.ascontiguousarray(array if (self.factor == 1).all() else array * self.factor)
        return array.reshape(-1).view("uint8")

    def _laid_out(self, array: np.ndarray) -> np.ndarray:
        for kind, sizes in self.steps:
            array = array.reshape(sizes) if kind == "reshape" else array.transpose(sizes)
        return array
