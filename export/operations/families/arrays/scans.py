"""Running sums and products along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.operations.conditions import is_of_known_axis
from keras_transformer.export.operations.operation import Attributes, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


def running_product(x: Tensor, axis: Tensor, *, exclusive: bool, reverse: bool) -> Tensor:
    return _scanned(tf.multiply, 1, x, axis, exclusive, reverse)


def running_logsumexp(x: Tensor, axis: Tensor, *, exclusive: bool, reverse: bool) -> Tensor:
    return _scanned(_logaddexp, -math.inf, x, axis, exclusive, reverse)


def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """`log(exp(x) + exp(y))`, of finite numbers or of -inf."""
    most = tf.maximum(x, y)
    return most + tf.math.log1p(tf.exp(tf.minimum(x, y) - tf.maximum(most, x.dtype.min)))


def _scanned(
    combine: Callable[[Tensor, Tensor], tf.Tensor],
    identity: float,
    x: tf.Tensor,
    axis: Tensor,
    exclusive: bool,
    reverse: bool,
) -> Tensor:
    """An associative operation over all elements up to each: `log2(n)` steps, each over twice as many elements.

    Reference: Hillis and Steele, "Data Parallel Algorithms", Communications of the ACM 29(12), 1986.
    """
    axis = int(tf.get_static_value(axis)) % x.shape.rank
    shape, length = tf.shape(x), tf.shape(x)[axis]

    def shifted(x: Tensor, step: Tensor) -> tf.Tensor:
        """`x`, moved on by `step`, behind as many elements that change nothing."""
        front = tf.fill(tf.tensor_scatter_nd_update(shape, [[axis]], [step]), tf.constant(identity, x.dtype))
        size = tf.tensor_scatter_nd_update(shape, [[axis]], [length - step])
        return tf.concat([front, tf.slice(x, tf.zeros_like(shape), size)], axis)

    def doubled(step: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        moved = combine(shifted(x, step), x)
        moved.set_shape(x.shape)
        return step * 2, moved

    def is_left(step: Tensor, x: Tensor) -> Tensor:
        return step < length

    x = tf.reverse(x, [axis]) if reverse else x
    if exclusive:
        given = x.shape
        x = shifted(x, tf.minimum(length, 1))
        x.set_shape(given)
    _, x = tf.while_loop(is_left, doubled, (tf.constant(1), x))
    return tf.reverse(x, [axis]) if reverse else x


def _length(attributes: Attributes, inputs: Sequence[tf.Tensor], result: Tensor) -> float:
    return inputs[0].shape[int(inputs[1])]


_OPTIONS = ("exclusive", "reverse")
_PRODUCT = Decomposed(running_product, _OPTIONS, is_of_known_axis)
_LOGSUMEXP = Decomposed(running_logsumexp, _OPTIONS, is_of_known_axis)

OPERATIONS = (
    Operation("Cumprod", in_both(_PRODUCT), rounds=True, sum_length=_length),
    Operation("Cumsum", rounds=True, sum_length=_length),
    Operation("CumulativeLogsumexp", in_both(_LOGSUMEXP), rounds=True, sum_length=_length),
)
