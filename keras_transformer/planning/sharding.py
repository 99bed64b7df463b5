"""The share of a model that one of several devices has under tensor parallelism."""

from __future__ import annotations

import math
from collections.abc import Iterable

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.models.transforms.layout_map import layout_map


class Sharding:
    """The share of each tensor that one device has, if several share the weights of a replica.

    Called with the shape of a tensor of a step, it returns that share. Hidden states between the blocks are replicated.
    Tensors with heads, and those of another width, such as the inside of a feed-forward, are split, as are the weights that
    `models.layout_map` splits.

    Args:
        model: `keras.Model`.
        parts: int >= 1. The number of devices that share a replica.
        sequence: bool. Whether they also divide the tokens of hidden states between the blocks (sequence parallelism).

    Attributes:
        widths: set of int: widths of the hidden states between the blocks.
        splits_cache: bool: whether the cache is split by heads.
    """

    def __init__(self, model: keras.Model, parts: int, sequence: bool = False) -> None:
        self.parts = parts
        self.key = (parts, sequence)
        self._sequence = sequence
        self.paths: set[str] = set()
        self.shapes: set[tuple[int, ...]] = set()
        blocks = [layer for layer in model.layers if isinstance(layer, Block)]
        # Further outputs, such as the values that later blocks reuse, are no hidden states.
        self.widths = {keras.tree.flatten(layer.output)[0].shape[-1] for layer in blocks}
        self.splits_cache = False
        if parts == 1:
            return
        mesh = keras.distribution.DeviceMesh((1, parts), ("batch", "model"), [f"cpu:{index}" for index in range(parts)])
        paths = set(layout_map(model, mesh).keys())  # Looking up an unknown path would try all as regular expressions.
        for variable in model.variables:
            if variable.path in paths:
                shape = tuple(variable.shape)
                self.paths.add(variable.path)
                # As matrix products use them: with two axes.
                self.shapes |= {shape, (shape[0], math.prod(shape[1:])), (math.prod(shape[:-1]), shape[-1])}
        self.splits_cache = any(path.endswith("/key/kernel") for path in self.paths)

    def __call__(self, shape: tuple[int, ...]) -> float:
        if self.parts == 1 or len(shape) < 2:
            return 1.0
        is_hidden = shape[-1] in {1, *self.widths} and not (self._sequence and len(shape) == 3)
        is_split = shape in self.shapes or len(shape) >= 4 or not is_hidden
        return 1 / self.parts if is_split else 1.0

    def bytes_of(self, variables: Iterable[keras.Variable], item_size: int | None = None) -> float:
        """Returns the bytes of weights on one device: as stored, or with `item_size` bytes per element."""
        total = 0.0
        for variable in variables:
            size = math.prod(variable.shape) * (item_size or _item_size(variable))
            total += size / (self.parts if variable.path in self.paths else 1)
        return total


def _item_size(variable: keras.Variable) -> int:
    """Returns the bytes of an element of a variable."""
    name = keras.backend.standardize_dtype(variable.dtype)
    digits = "".join(character for character in name if character.isdigit())
    return max(1, int(digits) // 8) if digits else 1
