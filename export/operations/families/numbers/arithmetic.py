"""Sums, products and quotients, of numbers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float, is_float32, is_int64, is_integer
from keras_transformer.export.operations.families.numbers.places import DISTANCE
from keras_transformer.export.operations.families.numbers.swapped_operands import DIFFERENCES, QUOTIENT
from keras_transformer.export.operations.operation import (
    NAN,
    ONNX,
    TFLITE,
    Decomposed,
    Native,
    Operation,
    Region,
    in_both,
)
from keras_transformer.utils.types import Tensor

# The largest float32 below 2⁶³.
_LARGEST = float(np.float32(2**63 * (1 - 2.0**-24)))


_MOST = float(np.finfo("float32").max)
# What LiteRT clips to finite numbers, with the activation that may be part of it.
_CLIPPED = (
    *("Add", "AddV2", "AvgPool", "BatchMatMulV2", "BiasAdd", "Conv2D", "Conv2DBackpropInput", "Conv3D"),
    *("Conv3DBackpropInputV2", "DepthwiseConv2dNative", "Div", "Einsum", "FusedBatchNormV3", "MatMul"),
    *("MaxPool", "Mul", "RealDiv", "Sub"),
)


def is_infinite(x: Tensor) -> Tensor:
    """The converter compares with the largest finite number for equality."""
    return tf.abs(x) > tf.constant(_MOST)


def is_clipped(x: Tensor) -> Tensor:
    """Infinities of a product or a sum are the largest finite number in LiteRT."""
    return tf.abs(x) >= tf.constant(_MOST)


def is_not_clipped(x: Tensor) -> Tensor:
    return tf.abs(x) < tf.constant(_MOST)


def absolute_integer(x: Tensor) -> Tensor:
    return tf.maximum(x, -x)


def sign_of_integer(x: Tensor) -> Tensor:
    return tf.minimum(tf.maximum(x, tf.constant(-1, x.dtype)), tf.constant(1, x.dtype))


def floor_division_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """ONNX rounds to zero: one less where the remainder and the divisor have different signs. Nothing overflows."""
    rest = tf.truncatemod(x, y)
    known = tf.get_static_value(y)
    is_positive = known is not None and bool((known > 0).all())
    below = rest if is_positive else rest * tf.sign(y)
    return tf.truncatediv(x, y) + tf.minimum(tf.maximum(below, tf.constant(-1, x.dtype)), tf.constant(0, x.dtype))


def floor_division_of_floats(x: Tensor, y: Tensor) -> Tensor:
    """LiteRT's operator ends at a divisor of 0."""
    return tf.floor(x / y)


def floor_remainder_of_floats(x: Tensor, y: Tensor) -> Tensor:
    """The exact remainder, with the sign of the divisor."""
    rest = tf.truncatemod(x, y)
    is_other_sign = tf.not_equal(rest < 0.0, y < 0.0)
    return tf.where(tf.logical_and(tf.not_equal(rest, 0.0), is_other_sign), rest + y, rest)


def floor_remainder(graph: Any, node: Any, name: str, arguments: object) -> None:
    """ONNX's `Mod` of integers, which has the sign of the divisor."""
    _make_remainder(graph, node, name, fmod=0)


def remainder(graph: Any, node: Any, name: str, arguments: object) -> None:
    """ONNX's `Mod` with the sign of the dividend."""
    _make_remainder(graph, node, name, fmod=1)


def _make_remainder(graph: Any, node: Any, name: str, fmod: int) -> None:
    inputs, outputs, shapes, dtypes = node.input, node.output, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    graph.make_node("Mod", inputs, attr={"fmod": fmod}, name=name, outputs=outputs, shapes=shapes, dtypes=dtypes)


def floor_division_of_int64(x: Tensor, y: Tensor) -> Tensor:
    """LiteRT has the remainder of int64, and no quotient."""
    rest = tf.truncatemod(x, y)
    is_below = tf.logical_and(tf.not_equal(rest, 0), tf.not_equal(rest < 0, y < 0))
    return _whole_quotient(x - rest, y) - tf.cast(is_below, tf.int64)


def truncated_division_of_int64(x: Tensor, y: Tensor) -> Tensor:
    return _whole_quotient(x - tf.truncatemod(x, y), y)


def _whole_quotient(x: Tensor, y: Tensor) -> Tensor:
    """`x / y` of int64, where nothing remains: 22 bits of it at a time, which float32 has."""
    quotient = tf.zeros_like(x - y)
    for _ in range(3):
        part = tf.round(tf.cast(x, tf.float32) / tf.cast(y, tf.float32))
        part = tf.cast(tf.minimum(tf.maximum(part, -_LARGEST), _LARGEST), tf.int64)
        quotient, x = quotient + part, x - part * y
    return quotient


def truncated_division(x: Tensor, y: Tensor) -> Tensor:
    quotient = x / y
    return tf.sign(quotient) * tf.floor(tf.abs(quotient))


def truncated_remainder(x: Tensor, y: Tensor) -> Tensor:
    return x - tf.truncatediv(x, y) * y


def truncated_remainder_of_floats(x: Tensor, y: Tensor) -> Tensor:
    """That of the sizes, which is exact."""
    return tf.sign(x) * tf.math.floormod(tf.abs(x), tf.abs(y))


def truncated_remainder_of_int64(x: Tensor, y: Tensor) -> Tensor:
    rest = tf.math.floormod(x, y)
    is_other_sign = tf.not_equal(rest < 0, x < 0)
    return tf.where(tf.logical_and(tf.not_equal(rest, 0), is_other_sign), rest - y, rest)


def power_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """By the six bits of an exponent: all beyond overflow, but for those of -1, 0 and 1.

    Runtimes compute it in floats, which round what is large and do not overflow as integers do.
    """
    known = tf.get_static_value(y)
    if known is not None and known.size == 1 and known.min() >= 0:
        return _known_power(x + tf.zeros_like(y) if y.shape.rank else x, int(known.reshape(())))
    found = tf.ones_like(x + y)
    for _ in range(6):
        found = tf.where(tf.equal(tf.math.floormod(y, 2), 1), found * x, found)
        x, y = x * x, tf.math.floordiv(y, 2)
    return found


def _known_power(x: Tensor, exponent: int) -> Tensor:
    if exponent < 2:
        return x if exponent else tf.ones_like(x)
    half = _known_power(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


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


def next_after(x: Tensor, y: Tensor) -> Tensor:
    """The float next to `x` in the direction of `y`.

    Reference: Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding to nearest", BIT
    Numerical Mathematics 49(2), 2009, algorithm 1. Numbers near the smallest are scaled before; the smallest have all
    the same distance.
    """
    largest, smallest = np.finfo("float32").max, np.finfo("float32").smallest_subnormal
    scale = tf.where(tf.abs(x) < 2.0**-100, 2.0**60, 1.0)
    ulp = tf.abs(x * scale) * (2.0**-24 * (1 + 2.0**-23))
    up = tf.sign(y - x)
    found = tf.where(tf.abs(x) < 2.0**-125, x + up * smallest, (x * scale + up * ulp) / scale)
    found = tf.where(tf.abs(x) > largest, tf.sign(x) * largest, found)
    return tf.where(tf.logical_or(tf.equal(x, y), tf.not_equal(y, y)), y, found)


def next_after_in_float64(x: Tensor, y: Tensor) -> Tensor:
    """The next float64 of a float32, as `keras.ops.nextafter` has it, is cast back to that float32."""
    return tf.cast(tf.where(tf.equal(y, y), x, y), tf.float64)


def _uncast(node: Node) -> Sequence[str]:
    """The float32 that the inputs were cast from, or none."""
    producers = [node.producer(position) for position in range(len(node.inputs))]
    found = [each.inputs[0] for each in producers if each is not None and each.op == "Cast"]
    is_float32 = all(node.part.spec(each).dtype == tf.float32 for each in found)
    return found if len(found) == len(producers) and is_float32 else ()


def _is_cast_back(node: Node) -> bool:
    return len(_uncast(node)) > 0 and all(each == "Cast" for each in node.readers)


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


def _is_of_clipped(node: Node) -> bool:
    """Whether a node reads what LiteRT clips to finite numbers."""
    producer = node.producer(0)
    return is_float32(node) and producer is not None and producer.op in _CLIPPED


def _is_of_computed(node: Node) -> bool:
    """Whether no operand is a constant."""
    return all(node.value(each) is None for each in range(len(node.inputs)))


_FLOOR_DIVISIONS = (
    Decomposed(floor_division_of_int64, when=is_int64),
    Decomposed(floor_division_of_floats, when=is_float),
)
_DIVISION = Decomposed(truncated_division_of_int64, when=is_int64)
_REMAINDERS = (
    Decomposed(truncated_remainder_of_int64, when=is_int64),
    Decomposed(truncated_remainder_of_floats, when=is_float),
    Decomposed(truncated_remainder),
)
_FLOOR_REMAINDERS = {ONNX: (Decomposed(floor_remainder_of_floats, when=is_float), Native(floor_remainder))}
_POWER = Decomposed(power_of_integers, when=is_integer)
_LOG1P = Decomposed(times_logarithm_of_one_more)
_NEXT = (
    Decomposed(next_after, when=is_float32),
    Decomposed(next_after_in_float64, when=_is_cast_back, operands=_uncast),
)

OPERATIONS = (
    Operation("Abs", {TFLITE: Decomposed(absolute_integer, when=is_integer)}),
    Operation("Sign", {TFLITE: Decomposed(sign_of_integer, when=is_integer)}),
    Operation("IsFinite", {TFLITE: Decomposed(is_not_clipped, when=_is_of_clipped)}),
    Operation(
        "IsInf", {TFLITE: (Decomposed(is_clipped, when=_is_of_clipped), Decomposed(is_infinite, when=is_float32))}
    ),
    Operation("Add", rounds=True),
    Operation("AddV2", rounds=True),
    Operation("Sub", {TFLITE: (DISTANCE, *DIFFERENCES)}, rounds=True),
    Operation("Mul", {TFLITE: Decomposed(factors_joined, when=_is_normed, operands=_normed)}, rounds=True),
    Operation("MulNoNan", {ONNX: Decomposed(product_or_zero)}, rounds=True),
    Operation("Div", {TFLITE: QUOTIENT}, rounds=True),
    Operation("RealDiv", {TFLITE: QUOTIENT}, rounds=True),
    Operation("DivNoNan", rounds=True),
    Operation("Inv", {ONNX: Decomposed(tf.math.reciprocal)}, rounds=True),
    Operation("Reciprocal", rounds=True),
    Operation("FloorDiv", {TFLITE: _FLOOR_DIVISIONS, ONNX: Decomposed(floor_division_of_integers, when=is_integer)}),
    Operation("FloorMod", _FLOOR_REMAINDERS, rounds=True, rounds_operands=True),
    Operation("Mod", {TFLITE: _REMAINDERS, ONNX: Native(remainder)}, rounds=True, rounds_operands=True),
    Operation("TruncateDiv", {TFLITE: _DIVISION, ONNX: Decomposed(truncated_division, when=is_float)}),
    Operation("TruncateMod", {TFLITE: _REMAINDERS, ONNX: Native(remainder)}, rounds=True, rounds_operands=True),
    Operation("NextAfter", {TFLITE: _NEXT, ONNX: _NEXT}),
    Operation("SquaredDifference", rounds=True),
    Operation("Pow", in_both(_POWER), rounds=True),
    Operation("Xlogy", {ONNX: Decomposed(times_logarithm)}),
    Operation("Xlog1py", in_both(_LOG1P)),
    Operation("Xdivy", {ONNX: Decomposed(divided_unless_zero)}),
    Operation("Maximum", differs={TFLITE: (Region(NAN, _is_of_computed),)}),
    Operation("Minimum", differs={TFLITE: (Region(NAN, _is_of_computed),)}),
    Operation("AddN", rounds=True),
)
