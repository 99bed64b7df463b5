"""Weights of an ONNX graph in whole numbers, with their scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray, LazyArray
from keras_transformer.export.onnx.graph import add_constant
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import Quantization

# Blocks in 8 bits. Kernels quantize activations by the same blocks, and those of language models have outliers: larger
# blocks would cost more of the predictions than they save in bytes.
BLOCK = 32


class Blocks(NamedTuple):
    """The constants of a weight by blocks, and its layout.

    Args:
        codes: the codes, `(N, blocks, bytes)`.
        scale: the scales, `(N, blocks)`.
        offset: the offsets, `(blocks, N)`, or None: what is added to the codes around their middle.
        bits: 4 or 8.
        block: numbers of a block.
        shape: `(N, K)`.
        minimum: the minima, `(blocks, N)`, or None: what is added to the codes from 0, instead of an offset.
        middle: the code, from 0, that is stored as the middle of the bits; of blocks with minima.
    """

    codes: ir.Value
    scale: ir.Value
    offset: ir.Value | None
    bits: int
    block: int
    shape: tuple[int, int]
    minimum: ir.Value | None = None
    middle: int = 0


class QuantizedWeights:
    """The weights of a graph, and their quantized forms.

    Args:
        graph: `onnx_ir.Graph`, to which constants are added.
        quantization: `Quantization`.
        in_8_bits: names of weights that have 8 bits in any case.
        done: quantized weights of other graphs by label.
        keep: function that stores an array elsewhere than in memory, and returns a lazy one.
    """

    def __init__(
        self,
        graph: ir.Graph,
        quantization: Quantization,
        in_8_bits: Collection[str],
        done: dict[Any, Any],
        keep: Callable[[np.ndarray], AnyArray],
    ) -> None:
        self.graph, self._block_size, self._mode = graph, quantization.weights_per_scale, quantization.mode
        self._bits = 4 if quantization.mode == "weight_int4" else 8
        self._in_8_bits, self._done, self._keep = in_8_bits, done, keep

    def array(self, name: str) -> AnyArray:
        """The array of an initializer."""
        return constant_of(self.graph.initializers[name])

    def has(self, name: str, by_rows: bool) -> bool:
        """Whether a weight has a quantized form, for products with its rows or its columns."""
        return True

    def needs_blocks(self, name: str, by_rows: bool) -> bool:
        """Whether a weight is stored by blocks only, whatever kernels read it."""
        return self._mode.startswith("weight")

    def input_range(self, name: str, by_rows: bool) -> float | None:
        """The largest magnitude of the activations that a weight multiplies, if it is fixed by the weight."""
        return None

    def by_channel(self, name: str, by_rows: bool) -> tuple[ir.Value, ir.Value]:
        """The weight `(K, N)` in 8 bits and its scales, one for each channel that comes out."""
        label = f"{name}.int8_by_row" if by_rows else f"{name}.int8"
        codes, scale = self._quantized(label, name, by_rows, lambda rows: block_quantize.by_channel(rows.T))
        return codes, scale

    def around_128(self, name: str, by_rows: bool) -> tuple[ir.Value, ir.Value]:
        """`by_channel` with 128 added to the codes, uint8."""
        label = f"{name}.uint8_by_row" if by_rows else f"{name}.uint8"

        def compute(rows):
            numbers, scale = block_quantize.by_channel(rows.T)
            return (numbers.astype("int16") + 128).astype("uint8"), scale

        codes, scale = self._quantized(label, name, by_rows, compute)
        return codes, scale

    def by_channel_blocks(self, name: str, by_rows: bool) -> Blocks:
        """A weight with one scale `(N, 1)` for each channel, whose codes have the layout of blocks."""
        count, width = self._shape(name, by_rows)
        blocks = -(-width // BLOCK)

        def compute(rows):
            numbers, scale = block_quantize.by_channel(rows.T)
            codes = np.full((count, blocks * BLOCK), 128, "uint8")
            codes[:, :width] = numbers.T.astype("int16") + 128
            return codes.reshape(count, blocks, BLOCK), scale[:, None]

        label = f"{name}.int8_channels" + ("" if by_rows else "_by_column")
        codes, scale = self._quantized(label, name, by_rows, compute)
        return Blocks(codes, scale, None, 8, BLOCK, (count, width))

    def by_block(self, name: str, by_rows: bool) -> Blocks:
        """A weight with a scale for each block of its rows; in 4 bits with an offset too.

        Of a weight of higher rank, such as a stack of matrices, a row is all that belongs to an index of the first axis.
        """
        shape = self._shape(name, by_rows)
        bits = 8 if name in self._in_8_bits else self._bits
        label = f"{name}.int{bits}_blocks" + ("" if by_rows else "_by_column")
        if bits == 4:
            codes, scale, offset = self._quantized(label, name, by_rows, self._in_4_bits)
            return Blocks(codes, scale, offset, bits, self._block_size, shape)
        codes, scale = self._quantized(label, name, by_rows, lambda rows: block_quantize.by_block(rows, bits, BLOCK))
        return Blocks(codes, scale, None, bits, BLOCK, shape)

    def _in_4_bits(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        codes, scale, offset = block_quantize.by_offset_block(rows, self._block_size)
        return block_quantize.pack_nibbles(codes), scale, offset.T

    def _shape(self, name: str, by_rows: bool) -> tuple[int, int]:
        """The shape of a weight as rows, `(N, K)`."""
        first, *others = self.array(name).shape
        second = math.prod(others)
        return (first, second) if by_rows else (second, first)

    def _quantized(
        self, label: str, name: str, by_rows: bool, compute: Callable[..., Any], third: str = ".offset"
    ) -> list[ir.Value]:
        """The codes, scales and offsets of a weight, shared with other graphs of the same weight.

        Args:
            label: name of the codes.
            name: name of the weight.
            by_rows: bool. Whether its rows are the channels that come out.
            compute: function of these rows `(N, K)`.
            third: ending of the name of its third result.
        """
        source, made = self._done.get(label, (None, None))
        if source is None or not is_same(source, self.array(name)):
            rows = np.asarray(self.array(name)).reshape(self._shape(name, True))
            made = [self._stored(each) for each in compute(rows if by_rows else rows.T)]
            self._done[label] = self.array(name), made
        names = [f"{label}{suffix}" for suffix in ("", ".scale", third)[: len(made)]]
        return [self._constant(key, array) for key, array in zip(names, made, strict=True)]

    def _constant(self, name: str, array: AnyArray) -> ir.Value:
        return self.graph.initializers.get(name) or add_constant(self.graph, name, array)

    def store(self, name: str, array: np.ndarray) -> ir.Value:
        """Adds a constant, unless its name is known; returns it."""
        return self.graph.initializers.get(name) or add_constant(self.graph, name, self._stored(array))

    def zeros(self, scale: ir.Value) -> ir.Value:
        """Zero points of int8 codes with these scales.

        A session that makes products exact on processors without VNNI turns int8 weights into uint8, and gives those
        without zero points a single one, which its own check of scales by channel then refuses.
        """
        return self.store(f"{scale.name}.zero", np.zeros(shape_of(scale), "int8"))

    def _stored(self, array: np.ndarray) -> AnyArray:
        return self._keep(np.ascontiguousarray(array).reshape(np.shape(array)))


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The shape of a constant."""
    assert value.const_value is not None
    return tuple(map(int, value.const_value.shape.numpy()))


def is_same(array: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays have the same values."""
    if isinstance(array, LazyArray) and isinstance(other, LazyArray) and array.key == other.key:
        return True
    return array.shape == other.shape and np.array_equal(np.asarray(array), np.asarray(other))
