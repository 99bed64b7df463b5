"""Conditions of nodes that lowerings of several families have."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node


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
