"""Weights of an ONNX graph in whole numbers, with their scales."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.export.quantization import block_quantize

_TABLE_BLOCK = 128
# Blocks of products in 8 bits with a scale for each channel: the activations are quantized by these blocks.
_CHANNEL_BLOCK = 32


class Blocks(NamedTuple):
    """Names of the arrays of a weight by blocks, and its layout.

    Args:
        codes: name of the codes, `(N, blocks, bytes)`.
        scale: name of the scales, `(N, blocks)`.
        offset: name of the offsets, `(blocks, N)`, or None.
        bits: 4 or 8.
        block: numbers of a block.
        shape: `(N, K)`.
    """

    codes: str
    scale: str
    offset: str | None
    bits: int
    block: int
    shape: tuple[int, int]


class QuantizedWeights:
    """The arrays of a graph, and their quantized forms.

    Args:
        arrays: initializers by name; new ones are added.
        bits: 4 or 8, of weights by block.
        block_size: int: size of the blocks of 4 bits.
        in_8_bits: names of weights that have 8 bits in any case.
        done: quantized weights of other graphs by label.
    """

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        bits: int,
        block_size: int,
        in_8_bits: Collection[str],
        done: dict[str, Any],
    ) -> None:
        self.arrays, self._bits, self._block_size = arrays, bits, block_size
        self._in_8_bits, self._done = in_8_bits, done

    def by_channel(self, name: str, by_rows: bool) -> tuple[str, str]:
        """Names of the weight `(K, N)` in 8 bits and of its scales, one for each channel that comes out."""
        array = self.arrays[name]
        label = f"{name}.int8_by_row" if by_rows else f"{name}.int8"
        codes, scale = self._quantized(label, array.T if by_rows else array, block_quantize.by_channel)
        return codes, scale

    def by_channel_blocks(self, name: str, by_rows: bool) -> Blocks:
        """A weight with one scale `(N, 1)` for each channel, whose codes have the layout of blocks."""
        rows: Any = self.arrays[name] if by_rows else self.arrays[name].T
        count, width = rows.shape
        blocks = -(-width // _CHANNEL_BLOCK)

        def compute(rows):
            numbers, scale = block_quantize.by_channel(rows.T)
            codes = np.full((count, blocks * _CHANNEL_BLOCK), 128, "uint8")
            codes[:, :width] = numbers.T.astype("int16") + 128
            return codes.reshape(count, blocks, _CHANNEL_BLOCK), scale[:, None]

        label = f"{name}.int8_channels" + ("" if by_rows else "_by_column")
        codes, scale = self._quantized(label, rows, compute)
        return Blocks(codes, scale, None, 8, _CHANNEL_BLOCK, rows.shape)

    def by_block(self, name: str, by_rows: bool) -> Blocks:
        """A weight with a scale for each block of its rows; in 4 bits with an offset too."""
        rows: Any = self.arrays[name] if by_rows else self.arrays[name].T
        bits = 8 if name in self._in_8_bits else self._bits
        label = f"{name}.int{bits}_blocks" + ("" if by_rows else "_by_column")
        if bits == 4:
            codes, scale, offset = self._quantized(label, rows, self._in_4_bits)
            return Blocks(codes, scale, offset, bits, self._block_size, rows.shape)
        block = _largest_block(rows.shape[1])
        codes, scale = self._quantized(label, rows, lambda rows: block_quantize.by_block(rows, bits, block))
        return Blocks(codes, scale, None, bits, block, rows.shape)

    def _in_4_bits(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        codes, scale, offset = block_quantize.by_offset_block(rows, self._block_size)
        return block_quantize.pack_nibbles(codes), scale, offset.T

    def _quantized(self, label: str, array: np.ndarray, compute: Callable[..., Any]) -> list[str]:
        """Names of the codes, scales and offsets of a weight, shared with other graphs of the same weight."""
        source, made = self._done.get(label, (None, None))
        if source is None or not np.array_equal(source, array):
            made = compute(array)
            self._done[label] = array, made
        return [self.store(f"{label}{suffix}", each) for suffix, each in zip(("", ".scale", ".offset"), made)]  # noqa: B905

    def store(self, name: str, array: np.ndarray) -> str:
        """Adds an array, unless its name is known; returns the name."""
        self.arrays.setdefault(name, np.ascontiguousarray(array).reshape(np.shape(array)))
        return name


def _largest_block(width: int) -> int:
    """The largest block up to 128 that divides a row, otherwise 32 with padding."""
    return next((block for block in (_TABLE_BLOCK, 64, 32, 16) if width % block == 0), 32)
