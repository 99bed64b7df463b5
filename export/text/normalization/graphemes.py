"""Where short grapheme clusters begin: the units in which the `tokenizers` library applies precompiled character maps."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.normalization.code_points import LIMIT, VALID, PagedTable, spread
from keras_transformer.export.text.steps import before, look_up
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.utils.types import Tensor

_EXTENDS, _CONTROL, _PREPENDS = 1, 2, 4
_ACUTE, _CIRCUMFLEX = "\u0301", "\u0302"


def cluster_starts(codes: Tensor, parts: Tensor) -> Tensor:
    """Where grapheme clusters begin, as far as those of less than 6 bytes are concerned.

    Args:
        codes: int32 `(C,)`, code points.
        parts: bool `(C,)`, True at the start of each text.

    Returns:
        Bool `(C,)`.

    Reference:
        Unicode Standard Annex 29, rules GB3 to GB5 and GB9 to GB9b. The other rules join characters of 6 bytes or more.
        Classes: those of the library.
    """
    kinds = look_up(_classes(), codes)
    last = before(kinds, _CONTROL)
    # Each class is a bit of its own.
    joins = tf.logical_or(kinds % 2 == 1, last // _PREPENDS == 1)
    solid = tf.logical_and(last // _CONTROL % 2 == 0, kinds // _CONTROL % 2 == 0)
    line_end = tf.logical_and(before(codes, 0) == ord("\r"), codes == ord("\n"))
    return tf.logical_or(parts, tf.logical_not(tf.logical_or(line_end, tf.logical_and(joins, solid))))


@functools.cache
def _classes() -> PagedTable:
    """Asked of the library: a rule for the start of a cluster replaces the whole of it."""
    of_letter, of_mark = (_normalizer(each) for each in ("a", _ACUTE))
    found = np.zeros(LIMIT, "int32")
    for code in VALID:
        character = chr(code)
        found[code] = _EXTENDS * (of_letter(f"a{character}") == "b")
        found[code] += _CONTROL * of_mark(f"{character}{_ACUTE}{_CIRCUMFLEX}").endswith("b")
        found[code] += _PREPENDS * of_letter(f"{character}a{_ACUTE}").endswith(_ACUTE)
    return PagedTable(spread(found))


def _normalizer(character: str) -> Callable[[str], str]:
    """The `normalize_str` of a precompiled map with the one rule that makes a character "b"."""
    units = np.zeros(1024, "<u4")
    bases = [256, 512, 768]
    units[0] = bases[0] << 10
    content = character.encode()
    for number, byte in enumerate(content):
        node = bases[number] ^ byte
        units[node] = byte | (node ^ bases[number + 1]) << 10 | (number == len(content) - 1) << 8
    units[bases[len(content)]] = 1 << 31
    charsmap = struct.pack("<I", units.nbytes) + units.tobytes() + b"b\0"
    return library().normalizers.Precompiled(charsmap).normalize_str
