"""Weights of an ONNX graph as known blocks: the integers, scales and minima that they were made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray
from keras_transformer.export.onnx.quantization.quantized_weights import BLOCK, Blocks, QuantizedWeights, is_same
from keras_transformer.export.quantization.block_quantize import pack_nibbles
from keras_transformer.export.quantization.known_blocks import KnownBlocks
from keras_transformer.quantization.blocks import MIDDLES
from keras_transformer.quantization.blocks import Blocks as RowBlocks


class _Layout(NamedTuple):
    """How a weight is stored: bits, numbers of a block, whether whole rows have one scale; and the range of its inputs."""

    bits: int
    block: int
    has_whole_rows: bool
    input_range: float | None


class KeptWeights(QuantizedWeights):
    """The weights of a graph, and the blocks that are known of them.

    Args:
        blocks: `KnownBlocks`.
        graph, quantization, in_8_bits, done, keep: as for `QuantizedWeights`.
    """

    def __init__(self, blocks: KnownBlocks, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._blocks = blocks

    def has(self, name: str, by_rows: bool) -> bool:
        return self._layout(name, by_rows) is not None

    def needs_blocks(self, name: str, by_rows: bool) -> bool:
        layout = self._layout(name, by_rows)
        return layout is None or layout.bits != 8 or not layout.has_whole_rows

    def input_range(self, name: str, by_rows: bool) -> float | None:
        layout = self._layout(name, by_rows)
        return None if layout is None else layout.input_range

    def by_channel(self, name: str, by_rows: bool) -> tuple[ir.Value, ir.Value]:
        def compute(rows):
            found = self._found(rows)
            return (found.codes.reshape(rows.shape).astype("int16") - found.zero).astype("int8").T, found.scale[:, 0]

        label = f"{name}.int8_by_row" if by_rows else f"{name}.int8"
        codes, scale = self._quantized(label, name, by_rows, compute)
        return codes, scale

    def around_128(self, name: str, by_rows: bool) -> tuple[ir.Value, ir.Value]:
        def compute(rows):
            found = self._found(rows)
            return (found.codes.reshape(rows.shape) + np.uint8(128 - found.zero)).T, found.scale[:, 0]

        label = f"{name}.uint8_by_row" if by_rows else f"{name}.uint8"
        codes, scale = self._quantized(label, name, by_rows, compute)
        return codes, scale

    def by_channel_blocks(self, name: str, by_rows: bool) -> Blocks:
        return self.by_block(name, by_rows)

    def by_block(self, name: str, by_rows: bool) -> Blocks:
        label = f"{name}.blocks" + ("" if by_rows else "_by_column")
        made = self._quantized(label, name, by_rows, lambda rows: as_stored(self._found(rows)), ".minimum")
        layout = self._layout(name, by_rows)
        assert layout is not None
        minimum, middle = (made[2], MIDDLES[layout.bits]) if len(made) > 2 else (None, 0)
        shape = self._shape(name, by_rows)
        return Blocks(made[0], made[1], None, layout.bits, layout.block, shape, minimum, middle)

    def _found(self, rows: np.ndarray) -> RowBlocks:
        found = self._blocks.find(rows)
        assert found is not None
        return found

    def _layout(self, name: str, by_rows: bool) -> _Layout | None:
        """The layout of a weight that is known, which is looked for once for all graphs."""
        key, array = ("layout", name, by_rows), self.array(name)
        source, layout = self._done.get(key, (None, None))
        if source is None or not is_same(source, array):
            layout = self._looked_up(array, by_rows)
            self._done[key] = array, layout
        return layout

    def _looked_up(self, array: AnyArray, by_rows: bool) -> _Layout | None:
        if array.ndim != 2:
            return None
        rows = np.asarray(array)
        located = self._blocks.locate(rows if by_rows else rows.T)
        if located is None or not self._blocks.has_blocks(located[0]):
            return None
        first = self._blocks.first(located[0])
        whole = first.has_whole_rows
        block = BLOCK if whole else first.codes.shape[2]
        return _Layout(first.bits, block, whole, self._blocks.input_range(located[0]))


def as_stored(found: RowBlocks) -> tuple[np.ndarray, ...]:
    """The arrays of a graph: codes around the middle of their bits, packed; scales; and minima `(blocks, N)`, if any.

    Rows with one scale are cut into blocks of 32, of which the last is filled up with zeros.

    Example:

    >>> codes, half = np.array([[[7, 8, 9, 12]]], "uint8"), np.ones((1, 1), "float16")
    >>> [each.tolist() for each in as_stored(RowBlocks(codes, half, None, 8, 4))]
    [[[[135, 201]]], [[1.0]]]
    """
    zero = found.zero if found.minimum is None else MIDDLES[found.bits]
    codes = found.codes + np.uint8((1 << found.bits - 1) - zero)
    if found.has_whole_rows:
        count, _, width = codes.shape
        filled = np.pad(codes[:, 0], ((0, 0), (0, -width % BLOCK)), constant_values=1 << found.bits - 1)
        codes = filled.reshape(count, -1, BLOCK)
    codes = pack_nibbles(codes) if found.bits == 4 else codes
    return (codes, found.scale) if found.minimum is None else (codes, found.scale, found.minimum.T)
