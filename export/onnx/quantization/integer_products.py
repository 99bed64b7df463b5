"""Products of activations and quantized weights in ONNX graphs.

In 8 bits, activations are quantized by row: a scale for a whole batch would leave few codes to the rows without outliers.
Decoders have `MatMulNBits`, which quantizes them by block: single tokens are read faster, and language models have channels
of activations that are twenty times as large as the others. Weights that both read have one scale for each channel; those
that decoders alone read have one for each block.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import NodeMaker, name_of
from keras_transformer.export.onnx.options import CONTRIB
from keras_transformer.export.onnx.quantization.integer_tables import Top, as_float, dequantized_rows, offsets, once
from keras_transformer.export.onnx.quantization.quantized_weights import Blocks, QuantizedWeights, shape_of

if TYPE_CHECKING:
    from keras_transformer.export.quantization.options import Quantization

# `MatMulNBits`: activations are quantized by block too, which has fast kernels.
_INT8_COMPUTE = 4
_SMALLEST = np.float32(1e-30)


class Layout(enum.Enum):
    """How weights in 8 bits are stored: by the kernels that read them."""

    CHANNELS = enum.auto()
    """A matrix with a scale for each channel, for rows."""
    BLOCKS = enum.auto()
    """Blocks with a scale each, for decoders."""
    BOTH = enum.auto()
    """Blocks with a scale for each channel, for both."""


class Products:
    """Makes the products of one graph.

    Args:
        weights: `QuantizedWeights`.
        quantization: `Quantization`.
        top: nodes before all others of the model, by the name of their result; those for weights are added.
        contrib_ops: bool. Whether contrib operators of ONNX Runtime may be used.
        ranges: for "int8_static": dict of tensor name to its least and largest value.
        layout: `Layout` of the weights in 8 bits.
        matrices: names of the values of rank 2.
    """

    def __init__(
        self,
        weights: QuantizedWeights,
        quantization: Quantization,
        top: Top,
        contrib_ops: bool,
        ranges: dict[str, tuple[float, float]],
        layout: Layout,
        matrices: Collection[str] = (),
    ) -> None:
        self._weights, self._quantization, self._top = weights, quantization, top
        self._contrib_ops, self._ranges, self._layout, self._matrices = contrib_ops, ranges, layout, matrices
        self._shared: dict[Any, Any] = {}
        self._is_decoder = False

    def enter_graph(self, is_decoder: bool) -> None:
        """Begins another graph of the model: it cannot read the activations of the one before."""
        self._shared, self._is_decoder = {}, is_decoder

    def multiply(self, make: NodeMaker, x: ir.Value, weight: tuple[str, bool], result: str, by_block: bool) -> ir.Value:
        """A product.

        Args:
            make: `NodeMaker`.
            x: the activations.
            weight: name of the weight, and whether its rows are the channels that come out.
            result: name of the product.
            by_block: bool. Whether the weight is stored by blocks whatever the mode.
        """
        if by_block:
            if not self._contrib_ops:
                rows = dequantized_rows(make, self._weights.by_block(*weight), self._top, self._weights, None)
                return make.into(result, "MatMul", x, make("Transpose", rows, perm=[1, 0]))
            return self._by_blocks(make, x, self._weights.by_block(*weight), result)
        if self._quantization.mode == "int8_static":
            return self._calibrated(make, x, *self._weights.by_channel(*weight), result)
        largest = self._weights.input_range(*weight)
        if largest is not None:
            return self._with_range(make, x, np.float32(largest), self._weights.by_channel(*weight), result)
        if self._layout is Layout.CHANNELS or not self._contrib_ops:
            return self._by_rows(make, x, *self._weights.around_128(*weight), result)
        if self._layout is Layout.BLOCKS:
            return self._by_blocks(make, x, self._weights.by_block(*weight), result)
        blocks = self._weights.by_channel_blocks(*weight)
        if self._is_decoder:
            return self._by_blocks(make, x, blocks, result)
        return self._by_rows(make, x, self._matrix(blocks), self._flat_scale(blocks), result)

    def _by_rows(self, make: NodeMaker, x: ir.Value, weight: ir.Value, scale: ir.Value, result: str) -> ir.Value:
        """Rows are divided by their largest magnitude; then one scale serves all of them.

        Weights are uint8 around 128, as activations are: ONNX Runtime's kernels for int8 weights add products in 16 bits on
        processors without VNNI, and sums that do not fit there are cut off silently.
        """
        if x not in self._shared:
            last = make.constant(np.array([-1]), "last")
            largest = make("ReduceMax", make("Abs", x), last, keepdims=1)
            largest = make("Max", largest, make.constant(_SMALLEST, "smallest"))
            step, zero = self._weights.store("int8/step", np.array(1 / 127, "float32")), self._zero()
            self._shared[x] = make("QuantizeLinear", make("Div", x, largest), step, zero), largest, step, zero
        codes, largest, step, zero = self._shared[x]
        if self._contrib_ops:
            product = make("MatMulIntegerToFloat", codes, weight, step, scale, zero, zero, domain=CONTRIB)
            return make.into(result, "Mul", product, largest)
        product = make("Cast", make("MatMulInteger", codes, weight, zero, zero), to=ir.DataType.FLOAT)
        return make.into(result, "Mul", make("Mul", product, make("Mul", scale, step)), largest)

    def _zero(self) -> ir.Value:
        return self._weights.store("int8/zero", np.array(128, "uint8"))

    def _calibrated(self, make: NodeMaker, x: ir.Value, weight: ir.Value, scale: ir.Value, result: str) -> ir.Value:
        x = self._rounded(make, x, self._ranges[name_of(x)], "")
        factor = self._factor(make, weight, scale)
        bounds = self._ranges.get(f"{result}/result")
        if bounds is None:
            return make.into(result, "MatMul", x, factor)
        return self._rounded(make, make("MatMul", x, factor), bounds, "result_", result)

    @property
    def quantizes_results(self) -> bool:
        """Whether the results of products were measured, for a processor that multiplies integers to integers only."""
        return any(name.endswith("/result") for name in self._ranges)

    def has_range(self, result: str) -> bool:
        """Whether a product, without its bias, was measured."""
        return f"{result}/result" in self._ranges

    def rounded_argument(self, make: NodeMaker, x: ir.Value | None) -> ir.Value | None:
        """The argument of an activation function as integers, and back; None where it was not measured.

        With its result, which the next product rounds, a processor of integers looks it up in a table.
        """
        bounds = self._ranges.get(f"{name_of(x)}/argument")
        return None if x is None or bounds is None else self._rounded(make, x, bounds, "argument_")

    def convolve(
        self, make: NodeMaker, inputs: Sequence[ir.Value | None], options: dict[str, object], result: str
    ) -> ir.Value:
        """A convolution of integers with an integer result, to which the bias is added.

        Args:
            make: `NodeMaker`.
            inputs: the activations, the weight, and the bias if there is one.
            options: the attributes of the convolution.
            result: name of its result; see `has_range`.
        """
        x, kernel, *bias = inputs
        if x is None or kernel is None:
            raise ValueError(f"the convolution of {result!r} has no input or no weight")
        x = self._rounded(make, x, self._ranges[name_of(x)], "")
        product, bounds = make("Conv", x, kernel, **options), self._ranges[f"{result}/result"]
        if not bias:
            return self._rounded(make, product, bounds, "result_", result)
        # Channels are the second axis of `(B, C, ...)`.
        last = len(shape_of(kernel)) - 2
        column = make("Unsqueeze", bias[0], make.constant(np.arange(1, 1 + last), "axes"))
        return make.into(result, "Add", self._rounded(make, product, bounds, "result_"), column)

    def _with_range(
        self, make: NodeMaker, x: ir.Value, largest: np.float32, weight: tuple[ir.Value, ir.Value], result: str
    ) -> ir.Value:
        """A product whose activations have a range that training has fixed: 127 steps on each side of 0."""
        position = [make.constant(largest / np.float32(127), "step"), self._zero()]
        x = make("DequantizeLinear", make("QuantizeLinear", x, *position), *position)
        return make.into(result, "MatMul", x, self._factor(make, *weight))

    def _factor(self, make: NodeMaker, weight: ir.Value, scale: ir.Value) -> ir.Value:
        """The weight as floats, which kernels and NPUs read with the product as one operator."""
        return make("DequantizeLinear", weight, scale, self._weights.zeros(scale), axis=1)

    def _rounded(
        self, make: NodeMaker, x: ir.Value, bounds: tuple[float, float], label: str, result: str | None = None
    ) -> ir.Value:
        """A tensor as integers of a range that was measured, and back."""
        least, most = min(bounds[0], 0.0), max(bounds[1], 1e-6)
        bits = self._quantization.activation_bits
        step = np.float32((most - least) / ((1 << bits) - 1))
        zero = np.array(round(-least / step), f"uint{bits}")
        position = [make.constant(step, f"{label}step"), make.constant(zero, f"{label}zero")]
        # Until opset 21 only contrib operators have 16 bits.
        domain = {"domain": CONTRIB} if bits == 16 else {}
        codes = make("QuantizeLinear", x, *position, **domain)
        if result is None:
            return make("DequantizeLinear", codes, *position, **domain)
        return make.into(result, "DequantizeLinear", codes, *position, **domain)

    def _by_blocks(self, make: NodeMaker, x: ir.Value, blocks: Blocks, result: str) -> ir.Value:
        (count, width), number = blocks.shape, shape_of(blocks.codes)[1]
        shape = {"K": width, "N": count, "bits": blocks.bits, "block_size": blocks.block}
        scale = as_float(self._top, self._weights, blocks.scale)
        if shape_of(blocks.scale)[1] < number:
            scale = self._once("Expand", scale, np.array([count, number]))
        offset = offsets(self._top, self._weights, blocks)
        name, options = result if offset is None else f"{result}/scaled", {"accuracy_level": _INT8_COMPUTE, **shape}
        product = make.into(name, "MatMulNBits", x, blocks.codes, scale, domain=CONTRIB, **options)
        if offset is None:
            return product
        sums = self._sums(make, x, blocks)
        if name_of(x) in self._matrices:
            return make.into(result, "Gemm", sums, offset, product)
        return make.into(result, "Add", product, make("MatMul", sums, offset))

    def _sums(self, make: NodeMaker, x: ir.Value, blocks: Blocks) -> ir.Value:
        """The sum of the activations of each block, which the offset of the block multiplies."""
        width, block = blocks.shape[1], blocks.block
        if (x, width, block) not in self._shared:
            ones = (np.arange(width)[:, None] // block == np.arange(-(-width // block))).astype("float32")
            self._shared[x, width, block] = make("MatMul", x, self._weights.store(f"sums/{width}/{block}", ones))
        return self._shared[x, width, block]

    def _matrix(self, blocks: Blocks) -> ir.Value:
        """The codes of blocks as a matrix `(K, N)`, which the runtime computes when it loads."""
        count, width = blocks.shape
        rows = self._once("Reshape", blocks.codes, np.array([count, -1]))
        if shape_of(blocks.codes)[1] * blocks.block > width:
            rows = self._once("Slice", rows, np.array([0]), np.array([width]), np.array([1]))
        return self._once("Transpose", rows, perm=[1, 0])

    def _flat_scale(self, blocks: Blocks) -> ir.Value:
        return self._once("Reshape", blocks.scale, np.array([-1]))

    def _once(self, op: str, source: ir.Value, *arguments: np.ndarray, **attributes: object) -> ir.Value:
        """The result of an operator on weights, computed once at the top of the model."""
        return once(self._top, self._weights, op, source, *arguments, **attributes)
