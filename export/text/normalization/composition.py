"""Normalization to composed characters (NFC) in a graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.normalization import code_points as unicode
from keras_transformer.export.text.normalization.marks import mark_order
from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import before, flag, gather, indices, look_up, loop, repeated
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.utils.types import Tensor


class Composition:
    """NFC of texts. Those that are composed already cost a look at each character.

    Call arguments:
        codes: int32 `(C,)`, code points.
        rows: int32 `(C,)`, the number of the text of each.
        forced: int32 `(C,)`, a value that stays with a character, -1 for none.
        first: bool `(C,)`, True where a text begins, or a part of it that is normalized by itself.

    Returns:
        The same for the composed characters.

    Reference:
        The Unicode Standard, section 3.11: definitions D108 to D117. Data: that of the `tokenizers` library.
    """

    def __init__(self) -> None:
        compose, decompose = library().normalizers.NFC().normalize_str, unicode.decomposition()
        classes = unicode.combining_classes()
        parts = {code: decompose(chr(code)) for code in unicode.VALID}
        composed = {code: compose(chr(code)) for code in unicode.VALID}
        pairs: dict[tuple[int, int], int] = {}
        for code, text in parts.items():
            if len(text) > 1 and composed[code] == chr(code):
                left = compose(text[:-1])
                if len(left) == 1 and compose(left + text[-1]) == chr(code):
                    pairs[ord(left), ord(text[-1])] = code
        lefts, rights = (
            {code: number for number, code in enumerate(sorted(set(side)), 1)} for side in zip(*pairs, strict=True)
        )
        numbered = {(lefts[left], rights[right]): code for (left, right), code in pairs.items()}
        self._pairs = PairTable(numbered, len(lefts) + 1, len(rights) + 1)
        self._left, self._right = _table(lefts), _table(rights)
        changes = [each for each in unicode.VALID if composed[each] != chr(each)]
        self._suspects = _table(dict.fromkeys([*changes, *classes, *rights], 1))
        self._decompositions(
            {code: text for code, text in parts.items() if text != chr(code) or code in classes}, classes
        )

    def _decompositions(self, parts: dict[int, str], classes: dict[int, int]) -> None:
        """Number 0 is that of a character that stays as it is."""
        self._numbers = _table({code: number for number, code in enumerate(parts, 1)})
        self._counts = np.array([1, *map(len, parts.values())], "int32")
        self._starts = (np.cumsum(self._counts) - self._counts).astype("int32")
        flat = [0, *(ord(each) for text in parts.values() for each in text)]
        self._codes, self._classes = np.array(flat, "int32"), np.array([classes.get(code, 0) for code in flat], "int32")

    def __call__(self, codes: Tensor, rows: Tensor, forced: Tensor, first: Tensor) -> tuple[Tensor, ...]:
        suspects = tf.reduce_max(look_up(self._suspects, codes))
        state = [codes, rows, forced, flag(first), suspects]
        *state, _ = loop(lambda *state: state[-1] > 0, self._normalized, state)
        return state[0], state[1], state[2], state[3] > 0

    def _normalized(self, codes: Tensor, rows: Tensor, forced: Tensor, first: Tensor, _: Tensor) -> list[Tensor]:
        units = tf.cumsum(first)
        numbers = look_up(self._numbers, codes)
        item, offset = repeated(gather(self._counts, numbers))
        number = tf.gather(numbers, item)
        place = gather(self._starts, number) + offset
        codes = tf.where(number == 0, tf.gather(codes, item), gather(self._codes, place))
        classes = gather(self._classes, place)
        forced = tf.where(offset == 0, tf.gather(forced, item), -1)
        rows, units = tf.gather(rows, item), tf.gather(units, item)
        order = mark_order(classes, units)
        codes, classes = tf.gather(codes, order), tf.gather(classes, order)
        state = [codes, classes, units, rows, forced, tf.zeros_like(codes), tf.constant(1)]
        codes, _, units, rows, forced, _, _ = loop(lambda *state: state[-1] > 0, self._composed, state)
        return [codes, rows, forced, flag(before(units, 0) != units), tf.constant(0)]

    def _composed(
        self, codes: Tensor, classes: Tensor, units: Tensor, rows: Tensor, forced: Tensor, passed: Tensor, _: Tensor
    ) -> list[Tensor]:
        """Joins characters to those before them, at most one to each, in an order that gives what one pass would."""
        size, places = tf.size(codes), tf.range(tf.size(codes))
        last, has_last = _last_starters(classes, units)
        right = look_up(self._right, codes)
        left = tf.gather(look_up(self._left, codes), last)
        slot = gather(self._pairs.starts, left) + right
        previous = before(classes, 0)
        is_free = tf.logical_or(last == places - 1, tf.logical_and(previous > 0, previous < classes))
        known = tf.logical_and(left > 0, gather(self._pairs.owners, slot) == left)
        fits = tf.logical_and(tf.logical_and(has_last, is_free), tf.logical_and(known, passed == 0))
        chosen = _independent(fits, last, tf.gather(right, last) > 0, units)
        joined = indices(chosen)
        target = tf.gather(last, joined)
        made = gather(self._pairs.values, tf.gather(slot, joined))
        codes += tf.math.unsorted_segment_sum(made - tf.gather(codes, target), target, size)
        # Characters before the one that is joined are not looked at again.
        until = tf.gather(tf.math.unsorted_segment_sum(joined, target, size), last)
        passed = flag(tf.logical_or(passed > 0, tf.logical_and(has_last, places < until)))
        kept = indices(tf.logical_not(chosen))
        state = [tf.gather(each, kept) for each in (codes, classes, units, rows, forced, passed)]
        return [*state, tf.size(joined)]


def _table(values: dict[int, int]) -> unicode.PagedTable:
    entries = np.zeros(unicode.LIMIT, "int32")
    entries[list(values)] = list(values.values())
    return unicode.PagedTable(entries)


def _last_starters(classes: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the last character of class 0 before each one, and whether its unit has one."""
    starters = flag(classes == 0)
    count = tf.cumsum(starters) - starters
    last = tf.gather(tf.concat([[0], indices(classes == 0)], 0), count)
    return last, tf.logical_and(count > 0, tf.gather(units, last) == units)


def _independent(fits: Tensor, last: Tensor, may_move: Tensor, units: Tensor) -> Tensor:
    """Those characters that fit for which nothing before them can change what they join.

    The first of each starter, unless the starter may itself be joined to an earlier one.
    """
    counts = tf.cumsum(flag(fits))
    earlier = counts - flag(fits)
    own_first = tf.logical_and(earlier == tf.gather(counts, last), tf.logical_not(tf.gather(fits, last)))
    begins = before(units, 0) != units
    at_start = tf.gather(tf.gather(earlier, indices(begins)), tf.cumsum(flag(begins)) - 1)
    return tf.logical_and(fits, tf.where(may_move, earlier == at_start, own_first))
