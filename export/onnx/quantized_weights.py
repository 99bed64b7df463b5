"""Weights of an ONNX graph in whole numbers, with their scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_transformer.export.quantization import block_quantize

_TABLE_BLOCK = 128


class QuantizedWeights:
    """The arrays of a graph, and their quantized forms.

    Args:
        arrays: initializers by name; new ones are added.
        bits: 4 or 8, of weights by block.
        block_size: int: size of the blocks of 4 bits.
        done: quantized weights of other graphs by label.
    """

    def __init__(self, arrays: dict[str, np.ndarray], bits: int, block_size: int, done: dict[str, Any]) -> None:
        self.arrays, self._bits, self._block_size, self._done = arrays, bits, block_size, done

    def by_channel(self, name: str, by_rows: bool) -> tuple[str, str]:
        """Names of the weight `(K, N)` in 8 bits and of its scales, one for each channel that comes out."""
        array = self.arrays[name]
        label = f"{name}.int8_by_row" if by_rows else f"{name}.int8"
        return self._quantized(label, array.T if by_rows else array, block_quantize.by_channel)

    def by_block(self, name: str, by_rows: bool) -> tuple[str, str, int, tuple[int, int]]:
        """Names of the weight by blocks `(N, blocks, bytes)` and of its scales `(N, blocks)`; block; `(N, K)`."""
        rows: Any = self.arrays[name] if by_rows else self.arrays[name].T
        block = self._block_size if self._bits == 4 else _largest_block(rows.shape[1])

        def compute(rows):
            codes, scale = block_quantize.by_block(rows, self._bits, block)
            return (codes, scale) if self._bits == 8 else (block_quantize.pack_nibbles(codes), scale.astype("float16"))

        label = f"{name}.int{self._bits}_blocks" + ("" if by_rows else "_by_column")
        return *self._quantized(label, rows, compute), block, rows.shape

    def _quantized(self, label: str, array: np.ndarray, compute: Callable[..., Any]) -> tuple[str, str]:
        """Names of the codes and the scales of a weight, shared with other graphs of the same weight."""
        source, made = self._done.get(label, (None, None))
        if source is None or not np.array_equal(source, array):
            made = compute(array)
            self._done[label] = array, made
        return self.store(label, made[0]), self.store(f"{label}.scale", made[1])

    def store(self, name: str, array: np.ndarray) -> str:
        """Adds an array, unless its name is known; returns the name."""
        self.arrays.setdefault(name, np.ascontiguousarray(array).reshape(np.shape(array)))
        return name


def _largest_block(width: int) -> int:
    """The largest block up to 128 that divides a row, otherwise 32 with padding."""
    return next((block for block in (_TABLE_BLOCK, 64, 32, 16) if width % block == 0), 32)
