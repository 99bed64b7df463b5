"""The canonical order of combining marks."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.text.steps import after, before, flag, loop
from keras_transformer.utils.types import Tensor


def mark_order(classes: Tensor, units: Tensor) -> Tensor:
    """The order in which marks of a higher combining class follow those of a lower one.

    Args:
        classes: int32 `(N,)`, combining class of each character, 0 for those that marks follow.
        units: int32 `(N,)`, a number for each text: marks stay in theirs.

    Returns:
        Indices, int32 `(N,)`.

    Reference:
        The Unicode Standard, definition D109. An odd-even sort, which ends at once where marks are in order.
    """
    places = tf.range(tf.size(classes))

    def step(order: Tensor, classes: Tensor, parity: Tensor) -> list[Tensor]:
        swaps = flag(tf.logical_and(_inverted(classes, units), places % 2 == parity))
        moved = places + swaps - before(swaps, 0)
        return [tf.gather(order, moved), tf.gather(classes, moved), 1 - parity]

    state = [places, classes, tf.constant(0)]
    return loop(lambda order, classes, _: tf.reduce_any(_inverted(classes, units)), step, state)[0]


def _inverted(classes: Tensor, units: Tensor) -> Tensor:
    """Where a mark stands before one of a lower class."""
    following = tf.where(after(units, -1) == units, after(classes, 0), 0)
    return tf.logical_and(following > 0, classes > following)
