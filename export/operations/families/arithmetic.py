"""Sums, products and quotients, of numbers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float, is_float32, is_int64, is_integer
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Native, Operation, Refused
from keras_transformer.utils.types import Tensor


def is_infinite(x: Tensor) -> Tensor:
    """The converter compares with the largest finite number for equality."""
    return tf.abs(x) > tf.constant(np.finfo("float32").max)


def absolute_integer(x: Tensor) -> Tensor:
    return tf.maximum(x, -x)


def sign_of_integer(x: Tensor) -> Tensor:
    return tf.minimum(tf.maximum(x, tf.constant(-1, x.dtype)), tf.constant(1, x.dtype))


def floor_division_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """ONNX rounds to zero; `x` less its remainder is a multiple of `y`."""
    return tf.truncatediv(x - tf.math.floormod(x, y), y)


def floor_remainder(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """ONNX's `Mod`, whose integers have the sign of the divisor; floats as tf2onnx has them."""
    from onnx import TensorProto
    from tf2onnx.onnx_opset.math import FloorMod

    if graph.get_dtype(node.input[0]) in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        FloorMod.version_7(graph, node)
        return
    inputs, outputs, shapes, dtypes = node.input, node.output, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    graph.make_node("Mod", inputs, attr={"fmod": 0}, name=name, outputs=outputs, shapes=shapes, dtypes=dtypes)


def truncated_division(x: Tensor, y: Tensor) -> Tensor:
    quotient = x / y
    return tf.sign(quotient) * tf.floor(tf.abs(quotient))


def truncated_remainder(x: Tensor, y: Tensor) -> Tensor:
    return x - tf.truncatediv(x, y) * y


def product_or_zero(x: Tensor, y: Tensor) -> Tensor:
    """0 where `y` is 0, also for infinities and NaN of `x`."""
    is_zero = tf.equal(y, 0)
    return tf.where(is_zero, tf.zeros_like(y), tf.where(is_zero, tf.ones_like(x * y), x) * y)


def times_logarithm(x: Tensor, y: Tensor) -> Tensor:
    return tf.math.multiply_no_nan(tf.math.log(y), x)


def times_logarithm_of_one_more(x: Tensor, y: Tensor) -> Tensor:
    return tf.math.multiply_no_nan(tf.math.log1p(y), x)


def divided_unless_zero(x: Tensor, y: Tensor) -> Tensor:
    return tf.math.multiply_no_nan(1 / y, x)


def factors_joined(x: Tensor, root: Tensor, weight: Tensor) -> Tensor:
    """`(x · rsqrt(m)) · γ` of an RMS norm as `x · (rsqrt(m) · γ)`.

    In signatures of fixed shapes only, the converter multiplies γ into the following kernels, which the file would then
    contain twice.
    """
    return x * (root * weight)


def _normed(node: Node) -> Sequence[str]:
    """The operands of `factors_joined`, or none."""
    weights = [each for each in node.inputs if node.part.is_weight(each)]
    if len(weights) != 1:
        return ()
    (product,) = (each for each in node.inputs if each != weights[0])
    inner = node.part.node(product)
    if inner is None or inner.op != "Mul" or len(inner.readers) != 1:
        return ()
    producers = {each: node.part.node(each) for each in inner.inputs}
    roots = [each for each, producer in producers.items() if producer is not None and producer.op == "Rsqrt"]
    others = [each for each in inner.inputs if each not in roots]
    return (others[0], roots[0], weights[0]) if len(roots) == 1 and len(others) == 1 else ()


def _is_normed(node: Node) -> bool:
    return len(_normed(node)) > 0


_NO_INT64 = Refused("LiteRT divides integers of 32 bits only", "cast to int32 before", is_int64)
_REMAINDER = Decomposed(truncated_remainder)

OPERATIONS = (
    Operation("Abs", {TFLITE: Decomposed(absolute_integer, when=is_integer)}),
    Operation("Sign", {TFLITE: Decomposed(sign_of_integer, when=is_integer)}),
    Operation("IsInf", {TFLITE: Decomposed(is_infinite, when=is_float32)}),
    Operation("Add", rounds=True),
    Operation("AddV2", rounds=True),
    Operation("Sub", rounds=True),
    Operation("Mul", {TFLITE: Decomposed(factors_joined, when=_is_normed, operands=_normed)}, rounds=True),
    Operation("MulNoNan", {ONNX: Decomposed(product_or_zero)}, rounds=True),
    Operation("Div", rounds=True),
    Operation("RealDiv", rounds=True),
    Operation("DivNoNan", rounds=True),
    Operation("Inv", {ONNX: Decomposed(tf.math.reciprocal)}, rounds=True),
    Operation("Reciprocal", rounds=True),
    Operation("FloorDiv", {TFLITE: _NO_INT64, ONNX: Decomposed(floor_division_of_integers, when=is_integer)}),
    Operation("FloorMod", {ONNX: Native(floor_remainder)}),
    Operation("Mod", {TFLITE: (_NO_INT64, _REMAINDER), ONNX: _REMAINDER}),
    Operation(
        "TruncateDiv",
        {TFLITE: _NO_INT64, ONNX: Decomposed(truncated_division, when=is_float)},
    ),
    Operation("TruncateMod", {TFLITE: (_NO_INT64, _REMAINDER), ONNX: _REMAINDER}),
    Operation("SquaredDifference", rounds=True),
    Operation("Pow", rounds=True),
    Operation("Xlogy", {ONNX: Decomposed(times_logarithm)}),
    Operation("Xlog1py", {ONNX: Decomposed(times_logarithm_of_one_more)}),
    Operation("Xdivy", {ONNX: Decomposed(divided_unless_zero)}),
    Operation("AddN", rounds=True),
)
