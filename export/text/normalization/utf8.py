"""Replacement of bytes that are no UTF-8 by U+FFFD, as decoders of text do."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.steps import after, before, flag, gather, repeated
from keras_transformer.utils.types import Tensor

_REPLACEMENT = "\ufffd".encode()


def repaired(values: Tensor, units: Tensor, whole: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Bytes as UTF-8: each longest start of a character that is not complete, or other byte, becomes U+FFFD.

    Args:
        values: int32 `(N,)`, bytes.
        units: int32 `(N,)`, a number for each text: characters do not go on in the next.
        whole: bool `(N,)` or None. Where True, all bytes of the unit become U+FFFD if one is no UTF-8.

    Returns:
        Bytes, and for each of them the index in `values` of the byte that it stands for.

    Reference:
        The Unicode Standard, section 3.9, table 3-7 and "U+FFFD Substitution of Maximal Subparts".
    """
    needed, matched = _lengths(values, units)
    is_whole = tf.logical_and(needed > 0, matched == needed)
    inside = in_broken = tf.zeros_like(values)
    of_whole, of_broken = tf.where(is_whole, matched, 0), tf.where(is_whole, 0, matched)
    for distance in (1, 2, 3):
        of_whole, of_broken = before(of_whole, 0), before(of_broken, 0)
        inside += flag(of_whole > distance)
        in_broken += flag(of_broken > distance)
    is_kept = tf.logical_or(is_whole, inside > 0)
    counts = tf.where(is_kept, 1, tf.where(in_broken > 0, 0, len(_REPLACEMENT)))
    if whole is not None:
        unit = tf.cumsum(flag(before(units, -1) != units)) - 1
        errors = tf.math.unsorted_segment_sum(
            flag(tf.logical_not(is_kept)), unit, tf.reduce_sum(flag(before(units, -1) != units))
        )
        fails = tf.logical_and(whole, tf.gather(errors, unit) > 0)
        counts, is_kept = tf.where(fails, len(_REPLACEMENT), counts), tf.logical_and(is_kept, tf.logical_not(fails))
    item, offset = repeated(counts)
    replaced = gather(np.frombuffer(_REPLACEMENT, "uint8"), offset)
    return tf.where(tf.gather(is_kept, item), tf.gather(values, item), replaced), item


def utf8_of(codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Code points as UTF-8: the bytes, and for each of them the index of its code point and its number in that."""
    sizes = 1 + flag(codes >= 0x80) + flag(codes >= 0x800) + flag(codes >= 0x10000)
    item, offset = repeated(sizes)
    code, size = tf.gather(codes, item), tf.gather(sizes, item)
    shifts = gather([1, 0x40, 0x1000, 0x40000], size - 1 - offset)
    leading = gather([0, 0, 0xC0, 0xE0, 0xF0], size)
    rest = code // shifts
    return tf.where(offset == 0, leading + rest, 0x80 + rest % 0x40), item, offset


def _lengths(values: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
    """The length of the character that each byte begins, 0 without one, and how many of its bytes are there."""
    needed = flag(values < 0x80)
    for low, high, length in ((0xC2, 0xDF, 2), (0xE0, 0xEF, 3), (0xF0, 0xF4, 4)):
        needed += length * flag(_within(values, low, high))
    low, high = tf.fill(tf.shape(values), 0x80), tf.fill(tf.shape(values), 0xBF)
    for first, bound in ((0xE0, 0xA0), (0xF0, 0x90)):
        low = tf.where(values == first, bound, low)
    for first, bound in ((0xED, 0x9F), (0xF4, 0x8F)):
        high = tf.where(values == first, bound, high)
    matched = tf.minimum(needed, 1)
    following, same = values, tf.ones_like(values)
    for length in (2, 3, 4):
        same = (
            flag(tf.logical_and(after(units, -1) == units, after(same, 0) > 0))
            if length > 2
            else flag(after(units, -1) == units)
        )
        following = after(following, 0)
        fits = tf.logical_and(_within(following, low, high), same > 0)
        matched += flag(tf.logical_and(fits, tf.logical_and(needed >= length, matched == length - 1)))
        low, high = tf.fill(tf.shape(values), 0x80), tf.fill(tf.shape(values), 0xBF)
    return needed, matched


def _within(values: Tensor, low: int | Tensor, high: int | Tensor) -> Tensor:
    return tf.logical_and(values >= low, values <= high)
