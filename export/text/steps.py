"""Steps that all tokenizer graphs share, of operators that TFLite and ONNX have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.normalization.code_points import PAGE, PagedTable
from keras_transformer.utils.types import ArrayLike, Tensor

# Sorts after every index, rank and id.
LARGE = 2**31 - 1


def indices(condition: Tensor) -> Tensor:
    """The indices at which a bool `(N,)` is True, int32."""
    return tf.cast(tf.where(condition)[:, 0], tf.int32)


def flag(condition: Tensor) -> Tensor:
    """A bool as int32 0 and 1."""
    return tf.cast(condition, tf.int32)


def after(values: Tensor, last: int) -> Tensor:
    """The next value of each place, `last` at the end."""
    return tf.concat([values[1:], [last]], 0)


def before(values: Tensor, first: int) -> Tensor:
    """The value before each place, `first` at the start."""
    return tf.concat([[first], values[:-1]], 0)


def look_up(table: PagedTable, codes: Tensor) -> Tensor:
    """The entries of code points in a `PagedTable`."""
    starts = tf.gather(tf.constant(table.page_starts), codes // PAGE)
    return tf.gather(tf.constant(table.pages), starts + codes % PAGE)


def gather(table: ArrayLike, index: Tensor) -> Tensor:
    """Entries of an int32 table of the file."""
    return tf.gather(tf.constant(np.asarray(table, "int32")), index)


def repeated(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The index of the item of each element, and its number within the item, where item i has `counts[i]` elements."""
    filled = indices(counts > 0)
    own = tf.gather(counts, filled)
    starts = tf.cumsum(own) - own
    total = tf.reduce_sum(own)
    item = tf.cumsum(marked(starts, total)) - 1
    return tf.gather(filled, item), tf.range(total) - tf.gather(starts, item)


def marked(places: Tensor, size: Tensor) -> Tensor:
    """An int32 `(size,)` that counts how often each index is among `places`."""
    return tf.math.unsorted_segment_sum(tf.ones_like(places), places, size)


def scattered(rows: Tensor, columns: Tensor, values: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """A matrix of zeros with values at some places, each of them once."""
    # Not a reshaped vector: ONNX takes a size of 0 for that of the operand.
    return tf.scatter_nd(tf.stack([rows, columns], 1), values, tf.stack([height, width]))


def next_true(condition: Tensor) -> Tensor:
    """For each place the index of the next one after it that is True, `N` without one."""
    known = tf.concat([indices(condition), tf.shape(condition)], 0)
    return tf.gather(known, tf.cumsum(flag(condition)))


def flat_bytes(rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The bytes of all texts one after another, and the number of the text of each.

    A further text "a" follows, so that no array is empty.

    Args:
        rows: uint8 `(B, N)`.
        lengths: int32 `(B,)`.
    """
    width = tf.shape(rows)[1]
    lengths = tf.clip_by_value(lengths, 0, width)
    place = indices(tf.reshape(tf.range(width)[None] < lengths[:, None], [-1]))
    values = tf.cast(tf.gather(tf.reshape(rows, [-1]), place), tf.int32)
    number = place // tf.maximum(width, 1)
    return tf.concat([values, [ord("a")]], 0), tf.concat([number, tf.shape(lengths)], 0)


def code_points(values: Tensor) -> tuple[Tensor, Tensor]:
    """The code points of UTF-8, and the index of the first byte of each.

    Bytes that are no UTF-8 give unspecified code points.
    """
    starts = indices(tf.logical_or(values < 0x80, values >= 0xC0))
    padded = tf.concat([values, [0x80, 0x80, 0x80]], 0)
    first, second, third, fourth = (tf.gather(padded, starts + offset) for offset in range(4))
    two = (first - 0xC0) * 64 + second - 0x80
    three = ((first - 0xE0) * 64 + second - 0x80) * 64 + third - 0x80
    four = (((first - 0xF0) * 64 + second - 0x80) * 64 + third - 0x80) * 64 + fourth - 0x80
    codes = tf.where(first < 0x80, first, tf.where(first < 0xE0, two, tf.where(first < 0xF0, three, four)))
    return tf.clip_by_value(codes, 0, 0x10FFFF), starts


def loop(condition: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], state: list[Tensor]) -> list[Tensor]:
    """`tf.while_loop` over arrays whose sizes may change."""
    shapes = [tf.TensorShape([None] * each.shape.rank) for each in state]
    return tf.while_loop(condition, body, state, shape_invariants=shapes)
