"""Weights of an ONNX graph as the blocks of the GGUF file that they were read from: the same integers, scales and minima."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.checkpoints.gguf.blocks import DECODED
from keras_transformer.export.onnx.quantized_weights import Blocks, QuantizedWeights, is_same
from keras_transformer.export.quantization.block_quantize import pack_nibbles
from keras_transformer.export.quantization.file_blocks import FileBlocks
from keras_transformer.export.spec.lazy_array import AnyArray
from keras_transformer.quantization.blocks import MIDDLES
from keras_transformer.quantization.blocks import Blocks as RowBlocks


class FileWeights(QuantizedWeights):
    """The arrays of a graph, and the blocks that a file has of them.

    Args:
        arrays, quantization, in_8_bits, done, keep: as for `QuantizedWeights`.
        blocks: `FileBlocks`.
    """

    def __init__(self, blocks: FileBlocks, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._blocks = blocks

    def has(self, name: str, by_rows: bool) -> bool:
        return self._place(name, by_rows) is not None

    def by_block(self, name: str, by_rows: bool) -> Blocks:
        label = f"{name}.blocks" + ("" if by_rows else "_by_column")
        names = self._quantized(label, name, by_rows, self._compute, ".minimum")
        (count, width), (_, number, size) = self._shape(name, by_rows), self.arrays[names[0]].shape
        block = width // number
        bits = 8 * size // block
        minimum, middle = (names[2], MIDDLES[bits]) if len(names) > 2 else (None, 0)
        return Blocks(names[0], names[1], None, bits, block, (count, width), minimum, middle)

    def _compute(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        found = self._blocks.find(rows)
        assert found is not None
        return as_stored(found)

    def _place(self, name: str, by_rows: bool) -> Any:
        """The tensor of the file that a weight is part of, looked for once for all graphs."""
        key, array = ("place", name, by_rows), self.arrays[name]
        source, place = self._done.get(key, (None, None))
        if source is None or not is_same(source, array):
            place = self._found(array, by_rows)
            self._done[key] = array, place
        return place

    def _found(self, array: AnyArray, by_rows: bool) -> Any:
        if array.ndim != 2:
            return None
        rows = np.asarray(array)
        located = self._blocks.locate(rows if by_rows else rows.T)
        return located if located and self._blocks.kind(located[0]) in DECODED else None


def as_stored(found: RowBlocks) -> tuple[np.ndarray, ...]:
    """The arrays of a graph: codes around the middle of their bits, packed; scales; and minima `(blocks, N)`, if any.

    Example:

    >>> codes, half = np.array([[[7, 8, 9, 12]]], "uint8"), np.ones((1, 1), "float16")
    >>> [each.tolist() for each in as_stored(RowBlocks(codes, half, None, 8, 4))]
    [[[[135, 201]]], [[1.0]]]
    """
    zero = found.zero if found.minimum is None else MIDDLES[found.bits]
    codes = found.codes + np.uint8((1 << found.bits - 1) - zero)
    codes = pack_nibbles(codes) if found.bits == 4 else codes
    return (codes, found.scale) if found.minimum is None else (codes, found.scale, found.minimum.T)
