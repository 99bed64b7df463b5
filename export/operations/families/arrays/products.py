"""Products of matrices, and biases."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int8
from keras_transformer.export.operations.families.arrays.diagonals import DIAGONAL_SUM
from keras_transformer.export.operations.operation import ONNX, TFLITE, Attributes, Decomposed, Operation
from keras_transformer.planning.graph.multiply_adds import einsum_multiply_adds
from keras_transformer.utils.types import Tensor


def product_of_bytes(x: Tensor, y: Tensor, *, adj_x: bool, adj_y: bool, Tout: tf.DType) -> Tensor:
    """A product of int8 with int8 in float32, cast back.

    Sums up to 2**24, such as those of 1,040 products, are exact; larger ones have seven correct digits.
    """
    operands = [tf.cast(each, tf.float32) for each in (x, y)]
    return tf.cast(tf.raw_ops.BatchMatMulV2(x=operands[0], y=operands[1], adj_x=adj_x, adj_y=adj_y), Tout)


def product_of_transposed(x: Tensor, y: Tensor, *, adj_x: bool, adj_y: bool, Tout: tf.DType) -> Tensor:
    """Integers are transposed before: ONNX's products of integers do not transpose."""
    x = tf.linalg.matrix_transpose(x) if adj_x else x
    y = tf.linalg.matrix_transpose(y) if adj_y else y
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=Tout)


def product_of_all(x: Tensor, y: Tensor, *, equation: str) -> Tensor:
    """The products of all elements of two tensors: an einsum that adds nothing up."""
    operands, result = equation.split("->")
    aligned = [_aligned(each, labels, result) for each, labels in zip((x, y), operands.split(","), strict=True)]
    return aligned[0] * aligned[1]


def _aligned(x: Tensor, labels: str, result: str) -> Tensor:
    """A tensor with the axes of the result of an einsum, of size 1 where it has none of its own."""
    own = [label for label in result if label in labels]
    x = x if list(labels) == own else tf.transpose(x, [labels.index(label) for label in own])
    for axis, label in enumerate(result):
        x = x if label in labels else tf.expand_dims(x, axis)
    return x


def _adds_nothing(node: Node) -> bool:
    """Whether an einsum of two operands adds nothing up, and the converter does not take it.

    It takes what has no axis in both operands, and at most one dynamic size in each.
    """
    operands, result = node.attribute("equation").split("->")
    labels = operands.split(",")
    is_plain = len(labels) == 2 and "." not in operands and all(len(set(each)) == len(each) for each in labels)
    if not is_plain or set(result) != set("".join(labels)):
        return False
    shapes = [node.part.spec(each).shape for each in node.inputs]
    is_dynamic = any(shape.rank and shape.as_list().count(None) > 1 for shape in shapes)
    return is_dynamic or not set(labels[0]).isdisjoint(labels[1])


def _is_transposed(node: Node) -> bool:
    return is_int8(node) and bool(node.attribute("adj_x") or node.attribute("adj_y"))


def _of_matrices(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return inputs[0].shape[0 if attributes["transpose_a"].b else 1]


def _of_batches(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return inputs[0].shape[-2 if attributes["adj_x"].b else -1]


def _of_einsum(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    shapes = [tuple(each.shape) for each in inputs]
    return einsum_multiply_adds(attributes["equation"].s.decode(), shapes) / max(1, math.prod(result.shape))


def with_bias_of_second_axis(x: Tensor, bias: Tensor) -> Tensor:
    """The converters know biases of the second axis for images only, and tf2onnx behind a convolution only."""
    return x + tf.reshape(bias, [-1, *[1] * (x.shape.rank - 2)])


def _is_no_image(node: Node) -> bool:
    return node.attribute("data_format") == "NCHW" and node.part.spec(node.inputs[0]).shape.rank in (3, 5)


def _is_behind_no_convolution(node: Node) -> bool:
    """Whether tf2onnx does not make a bias part of a convolution of images."""
    producer = node.producer(0)
    is_alone = producer is None or producer.op not in ("Conv2D", "Conv2DBackpropInput")
    return _is_no_image(node) or (node.attribute("data_format") == "NCHW" and is_alone)


_BIAS = {
    TFLITE: Decomposed(with_bias_of_second_axis, when=_is_no_image),
    ONNX: Decomposed(with_bias_of_second_axis, when=_is_behind_no_convolution),
}
_OPTIONS = ("adj_x", "adj_y", "Tout")
_BYTES = Decomposed(product_of_bytes, _OPTIONS, is_int8)
_ALL = Decomposed(product_of_all, ("equation",), _adds_nothing)
_TRANSPOSED = Decomposed(product_of_transposed, _OPTIONS, _is_transposed)

OPERATIONS = (
    Operation("MatMul", rounds=True, sum_length=_of_matrices, reads_weight=1),
    Operation("BatchMatMul", rounds=True, sum_length=_of_batches),
    Operation("BatchMatMulV2", rounds=True, sum_length=_of_batches, reads_weight=1),
    Operation("BatchMatMulV3", {TFLITE: _BYTES, ONNX: _TRANSPOSED}, rounds=True, sum_length=_of_batches),
    Operation("BiasAdd", _BIAS, rounds=True),
    Operation("Einsum", {TFLITE: (DIAGONAL_SUM, _ALL)}, rounds=True, sum_length=_of_einsum),
)
