"""Conditions of nodes that lowerings of several families have."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node, constant

_MOVES = (
    *("BroadcastTo", "ExpandDims", "Gather", "GatherV2", "Identity", "Reshape", "Slice", "Squeeze", "StridedSlice"),
    *("Tile", "Transpose"),
)
_JOINS = ("ConcatV2", "Pack")
# Operations whose integers are counts of elements, or their places.
_COUNTS = ("Shape", "ShapeN", "Size", "Rank", "Range", "ArgMax", "ArgMin", "Where")
_NARROW = (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16)
# Float32 has all integers below.
_SMALL = 2**24


def is_float32(node: Node) -> bool:
    """Whether the first input is float32."""
    return node.dtype() == tf.float32


def is_float(node: Node) -> bool:
    """Whether the first input is of floats."""
    return node.dtype().is_floating


def is_integer(node: Node) -> bool:
    """Whether the first input is of integers."""
    return node.dtype().is_integer


def is_boolean(node: Node) -> bool:
    """Whether the first input is boolean."""
    return node.dtype() == tf.bool


def is_float64(node: Node) -> bool:
    """Whether the first input is float64."""
    return node.dtype() == tf.float64


def is_int8(node: Node) -> bool:
    """Whether the first input is int8."""
    return node.dtype() == tf.int8


def is_byte(node: Node) -> bool:
    """Whether the first input is int8 or uint8."""
    return node.dtype() in (tf.int8, tf.uint8)


def is_int64(node: Node) -> bool:
    """Whether the first input is int64."""
    return node.dtype() == tf.int64


def is_wide_integer(node: Node) -> bool:
    """Whether the first input is of integers that float32 does not have."""
    return is_integer(node) and node.dtype() not in _NARROW


def is_of_known_axis(node: Node) -> bool:
    """Whether the second input, the axes of the first one, is a constant, and that has a known rank."""
    return node.value(1) is not None and node.part.spec(node.inputs[0]).shape.rank is not None


def is_small(node: Node | None) -> bool:
    """Whether the integers that an operation computes are small: constants, counts and places of elements, and casts."""
    while node is not None and node.op in _MOVES:
        node = node.producer(0)
    if node is None:
        return False
    value = constant(node)
    if value is not None:
        return bool((np.abs(value.astype("float64")) < _SMALL).all())
    if node.op in _JOINS:
        return all(is_small(node.producer(number)) for number in range(len(node.inputs)))
    return node.op in _COUNTS or (node.op == "Cast" and node.dtype() in _NARROW)
