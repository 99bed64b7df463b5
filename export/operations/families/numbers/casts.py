"""Floats as integers: LiteRT takes those beyond the range of the integers for the nearest end."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.operation import NAN, ONNX, TFLITE, Decomposed, Operation, Region
from keras_transformer.utils.types import Tensor

_NARROW = (tf.int8, tf.uint8, tf.int16, tf.uint16)
_LOWEST = tuple(float(each.min) for each in (tf.int32, tf.int64))
_WHOLE = ("Ceil", "Floor", "Round", "Rint")
_MOVES = ("Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Tile", "BroadcastTo", "StridedSlice", "Slice")
_LIMITED = ("Sigmoid", "Tanh", "Softmax", "Sign", "ClipByValue", "Range", "StatelessRandomUniformV2", "Relu6")
_PRODUCTS = ("MatMul", "BatchMatMulV2", "Einsum")
_LIMITS = {"Minimum": "Maximum", "Maximum": "Minimum"}


def cast_within_range(x: Tensor, *, DstT: tf.DType) -> Tensor:
    """TensorFlow's cast on a CPU: what is out of range, and NaN, is the smallest integer; narrow ones have its last bits."""
    wide = tf.int64 if DstT == tf.int64 else tf.int32
    lowest = float(wide.min)
    return tf.cast(tf.cast(tf.where(tf.abs(x) < -lowest, x, lowest), wide), DstT)


def _may_be_out_of_range(node: Node) -> bool:
    """Whether a float32 is cast to an integer that may not have it."""
    return _is_to_integer(node) and not _is_limited(node.producer(0))


def _is_within_range(node: Node) -> bool:
    """Whether a float32 is cast to an integer that has it, unless it is NaN."""
    return _is_to_integer(node) and _is_limited(node.producer(0))


def _is_to_integer(node: Node) -> bool:
    return is_float32(node) and node.attribute("DstT") in (*_NARROW, tf.int32, tf.int64)


def _is_limited(node: Node | None) -> bool:
    """Whether what an operation computes has limits of its own, or was an integer before."""
    while node is not None and node.op in (*_WHOLE, *_MOVES):
        node = node.producer(0)
    if node is None:
        return False
    if node.op in _LIMITS:
        others = [node.producer(each) for each in range(2) if node.value(each) is None]
        return [each and each.op for each in others] == [_LIMITS[node.op]]
    if node.op == "Cast":
        return not node.dtype().is_floating
    if node.op in _PRODUCTS:  # Of bytes, in floats.
        return all(_is_limited(node.producer(each)) for each in range(len(node.inputs)))
    if node.op == "SelectV2":  # That of `cast_within_range`.
        least = node.value(2)
        return least is not None and least.size == 1 and float(least.reshape(())) in _LOWEST
    return node.op in ("Const", *_LIMITED)


_CAST = Decomposed(cast_within_range, ("DstT",), _may_be_out_of_range)

_NAN = (Region(NAN, _is_within_range),)

OPERATIONS = (Operation("Cast", {TFLITE: _CAST}, differs={TFLITE: _NAN, ONNX: _NAN}),)
