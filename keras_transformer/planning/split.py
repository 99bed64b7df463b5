"""What one of several devices has of a model whose weights they share."""

import math

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.models.building.layout_map import layout_map


class Split:
    """The share of each tensor that one device has, where some hold the weights of a replica together.

    Called with the shape of a tensor of a step, it gives that share. What stands between the blocks is on each device whole;
    what has heads, or channels of other numbers, such as the inside of a feed-forward, is split, as weights are that
    `models.layout_map` splits.

    Args:
        model: `keras.Model`.
        parts: int >= 1. So many devices hold a replica.

    Attributes:
        widths: set of int: channels between the blocks.
        splits_cache: bool: whether keys and values are split by heads.
    """

    def __init__(self, model, parts):
        self.parts, self.paths, self.shapes = parts, set(), set()
        self.widths = {layer.output.shape[-1] for layer in model.layers if isinstance(layer, Block)}
        self.splits_cache = False
        if parts == 1:
            return
        mesh = keras.distribution.DeviceMesh((1, parts), ("batch", "model"), [f"cpu:{index}" for index in range(parts)])
        layouts = layout_map(model, mesh)
        for variable in model.variables:
            if layouts[variable.path] is not None:
                shape = tuple(variable.shape)
                self.paths.add(variable.path)
                # As they are multiplied: in two axes.
                self.shapes |= {shape, (shape[0], math.prod(shape[1:])), (math.prod(shape[:-1]), shape[-1])}
        self.splits_cache = any(path.endswith("/key/kernel") for path in self.paths)

    def __call__(self, shape):
        if self.parts == 1 or len(shape) < 2:
            return 1.0
        is_split = shape in self.shapes or len(shape) >= 4 or shape[-1] not in {1, *self.widths}
        return 1 / self.parts if is_split else 1.0

    def bytes_of(self, variables, size=None):
        """Bytes of weights on one device: as they are kept, or `size` bytes for each number."""
        total = 0.0
        for variable in variables:
            numbers = math.prod(variable.shape) * (size or _size(variable))
            total += numbers / (self.parts if variable.path in self.paths else 1)
        return total


def _size(variable):
    """Bytes of a number of a variable."""
    name = keras.backend.standardize_dtype(variable.dtype)
    digits = "".join(character for character in name if character.isdigit())
    return max(1, int(digits) // 8) if digits else 1
