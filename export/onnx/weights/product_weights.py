"""The matrix by which a product in an ONNX graph multiplies its activations, as a runtime reads it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.weights import Dequantized, codes
from keras_transformer.export.onnx.graph import attributes_of
from keras_transformer.export.onnx.weights.dequantize import COLUMNS, ConstantReader


def product_weight(reader: ConstantReader, value: ir.Value | None) -> Dequantized | None:
    """The matrix of the product that a tensor is the result of.

    Args:
        reader: `ConstantReader` of the file.
        value: the tensor.

    Returns:
        `Dequantized` `(K, N)`; None where the tensor is no product of activations and constants that is known here.
    """
    node = None if value is None else value.producer()
    evaluate = None if node is None else _PRODUCTS.get(node.op_type)
    return None if node is None or evaluate is None else evaluate(reader, node)


def _floats(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    options = attributes_of(node)
    found = reader.value(node.inputs[1])
    if found is None or found.values.ndim != 2 or options.get("transA"):
        return None
    if options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0:
        return None
    return found.map(np.transpose) if options.get("transB") else found


def _blocks(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """`MatMulNBits`: rows `(N, K)` in blocks, with a scale and perhaps a zero point for each."""
    options = attributes_of(node)
    packed, scale, *more = (reader.array(each) for each in node.inputs[1:])
    if packed is None or scale is None or len(node.inputs) > 5 or any(each is not None for each in node.inputs[4:]):
        return None
    bits, count, width = options["bits"], options["N"], options["K"]
    numbers = _unpacked(packed, bits).reshape(count, -1, options["block_size"])
    found = codes(numbers, None if bits == 8 else (1 << bits) - 1)
    zero: np.ndarray | np.float32 = np.float32(1 << bits - 1)
    if len(node.inputs) > 3 and node.inputs[3]:
        if more[0] is None:
            return None
        zeros = more[0].reshape(count, -1)
        zero = (zeros if zeros.dtype.kind == "f" else _unpacked(zeros, bits)[:, : numbers.shape[1]])[..., None]
    found = found.shifted(-np.asarray(zero, "float32")).scaled(scale.reshape(count, -1, 1).astype("float32"))
    guards = _guards(reader, node.inputs[0])
    if guards is None:
        return found.map(lambda array: array.reshape(count, -1)[:, :width].T)
    real, extra = guards
    if np.any(found.values[:, :, real:]):
        return None
    last = numbers.shape[1] * real - extra
    return found.map(lambda array: array[:, :, :real].reshape(count, -1)[:, :last].T)


def _guards(reader: ConstantReader, value: ir.Value | None) -> tuple[int, int] | None:
    """How many numbers of each block are activations, if more are appended, and how many are at the end of a row."""
    nodes = []
    for kind in ("Reshape", "Pad", "Reshape"):
        node = None if value is None else value.producer()
        if node is None or node.op_type != kind:
            return None
        nodes.append(node)
        value = node.inputs[0]
    cut, before = reader.array(nodes[2].inputs[1]), None if value is None else value.producer()
    ends = reader.array(before.inputs[1]) if before is not None and before.op_type == "Pad" else None
    return None if cut is None else (int(cut[-1]), 0 if ends is None else int(ends[-1]))


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 2, 4 or 8 bits, the first of a byte in its lowest bits."""
    if bits == 8:
        return packed
    parts = [packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


def _integers(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """`MatMulInteger` and `MatMulIntegerToFloat`, with the step of the activations divided out."""
    has_scales = node.op_type == "MatMulIntegerToFloat"
    inputs = [*node.inputs, None, None, None]
    weight, zero = reader.array(inputs[1]), reader.array(inputs[5 if has_scales else 3])
    source = None if inputs[0] is None else inputs[0].producer()
    step = reader.array(source.inputs[1]) if source is not None and source.op_type == "QuantizeLinear" else None
    if weight is None or step is None or step.size != 1 or (inputs[6] if has_scales else None):
        return None
    found = codes(weight)
    if zero is not None:
        found = found.shifted(-zero.astype("float32"))
    if not has_scales:
        return found.scaled(np.float32(1 / step))
    scales = [reader.array(each) for each in inputs[2:4]]
    if scales[0] is None or scales[1] is None:
        return None
    return found.scaled(scales[1]).scaled(np.float32(scales[0] / step))


def _same(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    return product_weight(reader, node.inputs[0])


def _rounded(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """A product as integers and back, by the same step and zero."""
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    if source is None or source.op_type != "QuantizeLinear" or source.inputs[1:] != node.inputs[1:]:
        return None
    return product_weight(reader, source.inputs[0])


def _scaled(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """A product times constants, or times the scale of its rows of activations."""
    for value, other in (node.inputs, node.inputs[::-1]):
        found = product_weight(reader, value)
        if found is not None:
            factor = reader.array(other)
            return found if factor is None else found.scaled(factor)
    return None


def _sum(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """A product plus a bias, or plus the sums of its activations times the offsets of its blocks."""
    left, right = (product_weight(reader, each) for each in node.inputs)
    if left is None or right is None:
        return right if left is None else left
    for found, other in ((left, node.inputs[1]), (right, node.inputs[0])):
        offsets = _offsets(reader, other)
        if offsets is not None and offsets.shape == found.values.shape:
            return found.shifted(offsets)
    return None


def _sum_of_matrix(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """`Gemm`: a product plus a bias, or the sums of activations times the offsets of their blocks, plus a product."""
    found = _floats(reader, node)
    addend = product_weight(reader, node.inputs[2]) if len(node.inputs) > 2 else None
    if addend is None or found is None:
        return found
    sums = product_weight(reader, node.inputs[0])
    fits = sums is not None and (len(sums.values), found.values.shape[1]) == addend.values.shape
    return addend.shifted(sums.values @ found.values) if sums is not None and fits else None


def _columns(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    """Some of the channels of products that are computed as one."""
    found, (start, end) = product_weight(reader, node.inputs[0]), node.attributes.get_ints("bounds", (0, 0))
    return found and found.map(lambda array: array[:, start:end])


def _offsets(reader: ConstantReader, value: ir.Value | None) -> np.ndarray | None:
    """The matrix of a product of two constants with the same activations."""
    node, second = None if value is None else value.producer(), product_weight(reader, value)
    first = product_weight(reader, node.inputs[0]) if node is not None and node.op_type == "MatMul" else None
    if first is None or second is None or first.values.shape[1] != len(second.values):
        return None
    return first.values @ second.values


_PRODUCTS = {
    "MatMul": _floats,
    "Gemm": _sum_of_matrix,
    COLUMNS: _columns,
    "MatMulNBits": _blocks,
    "MatMulInteger": _integers,
    "MatMulIntegerToFloat": _integers,
    "Cast": _same,
    "Identity": _same,
    "DequantizeLinear": _rounded,
    "Mul": _scaled,
    "Add": _sum,
}
