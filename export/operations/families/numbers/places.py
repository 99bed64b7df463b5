"""Places in a sorted row, which Keras's quantiles compute in float64, of which LiteRT has no arithmetic.

A place is `(n - 1) q` for `n` elements. A share `q` of 38 binary digits is exact enough for rows of 2²⁴ elements, and its
products with integers fit into int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node, constant
from keras_transformer.export.operations.conditions import is_float64
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation
from keras_transformer.utils.types import Tensor

_UNIT = 1 << 38


def floor_of_place(count: Tensor, less: Tensor, share: Tensor) -> Tensor:
    """The share is rounded up, so that a place that is whole stays so."""
    return tf.cast(_whole(_place(count, less, share, tf.math.ceil)), tf.float64)


def ceiling_of_place(count: Tensor, less: Tensor, share: Tensor) -> Tensor:
    return tf.cast(_whole(_place(count, less, share, tf.math.floor) + (_UNIT - 1)), tf.float64)


def rounded_place(count: Tensor, less: Tensor, share: Tensor) -> Tensor:
    """To the nearest whole number, or to the even one of two."""
    place = _place(count, less, share, tf.round)
    below, rest = _whole(place), tf.math.floormod(place, tf.constant(_UNIT, tf.int64)) - _UNIT // 2
    is_between = tf.abs(rest) <= tf.cast(count, tf.int64)
    is_odd = tf.equal(tf.math.floormod(below, 2.0), 1.0)
    is_up = tf.logical_or(tf.logical_and(is_between, is_odd), tf.logical_and(tf.logical_not(is_between), rest > 0))
    return tf.cast(below + tf.cast(is_up, tf.float32), tf.float64)


def distance_to_place(whole: Tensor, count: Tensor, less: Tensor, share: Tensor) -> Tensor:
    """How far a place is below a whole number near it."""
    distance = tf.cast(whole, tf.int64) * _UNIT - _place(count, less, share, tf.round)
    return tf.cast(tf.cast(distance, tf.float32) * (1 / _UNIT), tf.float64)


def _place(count: Tensor, less: Tensor, share: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """The place in units."""
    known = tf.get_static_value(share)
    if known is None:  # Float32, which times a power of two is exact.
        units = tf.cast(rounded(share * float(_UNIT)), tf.int64)
    else:
        with tf.init_scope():
            units = tf.cast(rounded(known.astype("float64") * _UNIT), tf.int64).numpy()
    return (tf.cast(count, tf.int64) - int(tf.get_static_value(less))) * units


def _whole(place: Tensor) -> Tensor:
    """The whole part of a place, which float32 has."""
    return tf.cast(place - tf.math.floormod(place, tf.constant(_UNIT, tf.int64)), tf.float32) * (1 / _UNIT)


def _uncast(node: Node, position: int) -> str:
    """What an input was cast from."""
    producer = node.producer(position)
    return producer.inputs[0] if producer is not None and producer.op == "Cast" else node.inputs[position]


def _factors(node: Node | None) -> Sequence[str]:
    """The operands of a place: a count, what is taken off, and the share; none if a node does not compute one."""
    if node is None or node.op != "Mul" or not is_float64(node):
        return ()
    difference = node.producer(0)
    if difference is None or difference.op != "Sub" or difference.value(1) is None:
        return ()
    count, share = _uncast(difference, 0), _uncast(node, 1)
    is_known = node.part.spec(share).dtype == tf.float32 or constant(node.part.node(share)) is not None
    return (count, difference.inputs[1], share) if is_known and node.part.spec(count).dtype.is_integer else ()


def _of_place(node: Node) -> Sequence[str]:
    return _factors(node.producer(0))


def _is_of_place(node: Node) -> bool:
    return is_float64(node) and len(_of_place(node)) > 0


def _to_place(node: Node) -> Sequence[str]:
    whole, factors = _uncast(node, 0), _factors(node.producer(1))
    return (whole, *factors) if factors and node.part.spec(whole).dtype.is_integer else ()


def _is_to_place(node: Node) -> bool:
    return is_float64(node) and len(_to_place(node)) > 0


DISTANCE = Decomposed(distance_to_place, when=_is_to_place, operands=_to_place)

OPERATIONS = tuple(
    Operation(name, {TFLITE: Decomposed(function, when=_is_of_place, operands=_of_place)})
    for name, function in (("Ceil", ceiling_of_place), ("Floor", floor_of_place), ("Round", rounded_place))
)
