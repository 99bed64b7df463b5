"""The arguments of a call of a layer, apart from the values of their tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """The arguments of a call, or its results: what they are but for the values of the tensors, and the tensors, each once.

    Args:
        structure: the arguments with a number, a `Place`, for each tensor.
        tensors: the tensors.
    """

    structure: Any
    tensors: list[Tensor]

    @classmethod
    def of(cls, arguments: object) -> LayerCall:
        """Returns the call of `arguments`, whose tensors bring their implicit masks as further ones: see `filled`."""
        tensors: list[Tensor] = []
        numbers: dict[int, Place] = {}

        def place(each: keras.KerasTensor) -> object:
            if not ops.is_tensor(each):
                return each
            if id(each) not in numbers:
                numbers[id(each)] = Place(len(tensors))
                tensors.append(each)
            return numbers[id(each)]

        masks = keras.tree.map_structure(lambda x: keras_private.get_mask(x) if ops.is_tensor(x) else None, arguments)
        structure = keras.tree.map_structure(place, arguments), keras.tree.map_structure(place, masks)
        return cls(structure, tensors)

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """Returns the arguments with other tensors, to which their masks are attached."""

        def fill(each: object) -> object:
            return tensors[each.number] if isinstance(each, Place) else each

        values, masks = (keras.tree.map_structure(fill, each) for each in self.structure)
        for value, mask in zip(keras.tree.flatten(values), keras.tree.flatten(masks), strict=True):
            if ops.is_tensor(value):
                keras_private.set_mask(value, mask)
        return values

    @property
    def key(self) -> Hashable:
        """Equal for calls that differ in the values of tensors only.

        Raises:
            TypeError: an argument cannot be hashed, such as an array.
        """
        leaves = tuple((type(each), each) for each in keras.tree.flatten(self.structure))
        hash(leaves)
        shapes = tuple((str(each.shape), each.dtype) for each in self.tensors)
        return repr(keras.tree.map_structure(lambda _: 0, self.structure)), leaves, shapes


@dataclasses.dataclass(frozen=True)
class Place:
    """The number of a tensor, in its place."""

    number: int
