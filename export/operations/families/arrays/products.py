"""Products of matrices, and biases."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int8
from keras_transformer.export.operations.families.signals.convolutions import has_steps_beyond_kernel
from keras_transformer.export.operations.operation import ONNX, TFLITE, Attributes, Decomposed, Lowering, Operation
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


def _is_transposed(node: Node) -> bool:
    return is_int8(node) and bool(node.attribute("adj_x") or node.attribute("adj_y"))


def _of_matrices(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return inputs[0].shape[0 if attributes["transpose_a"].b else 1]


def _of_batches(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return inputs[0].shape[-2 if attributes["adj_x"].b else -1]


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


def with_bias_behind_gaps(x: Tensor, bias: Tensor) -> Tensor:
    """A bias that tf2onnx would make part of a transposed convolution, behind which it adds zeros of a dynamic number."""
    return x + bias


def _is_behind_gaps(node: Node) -> bool:
    producer = node.producer(0)
    if producer is None or producer.op != "Conv2DBackpropInput" or node.attribute("data_format") != "NHWC":
        return False
    return has_steps_beyond_kernel(producer)


_BIAS: dict[str, Lowering | Sequence[Lowering]] = {
    TFLITE: Decomposed(with_bias_of_second_axis, when=_is_no_image),
    ONNX: (
        Decomposed(with_bias_of_second_axis, when=_is_behind_no_convolution),
        Decomposed(with_bias_behind_gaps, when=_is_behind_gaps),
    ),
}
_OPTIONS = ("adj_x", "adj_y", "Tout")
_BYTES = Decomposed(product_of_bytes, _OPTIONS, is_int8)
_TRANSPOSED = Decomposed(product_of_transposed, _OPTIONS, _is_transposed)

OPERATIONS = (
    Operation("MatMul", rounds=True, sum_length=_of_matrices, reads_weight=1),
    Operation("BatchMatMul", rounds=True, sum_length=_of_batches),
    Operation("BatchMatMulV2", rounds=True, sum_length=_of_batches, reads_weight=1),
    Operation("BatchMatMulV3", {TFLITE: _BYTES, ONNX: _TRANSPOSED}, rounds=True, sum_length=_of_batches),
    Operation("BiasAdd", _BIAS, rounds=True),
)
