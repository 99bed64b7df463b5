"""The words that byte-pair encoding works within, by the regular expressions of published tokenizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.normalization.code_points import (
    ISOLATED,
    LIMIT,
    PagedTable,
    kinds,
    matches,
    same_letters,
)
from keras_transformer.export.text.steps import after, before, flag, indices, look_up, loop, marked, next_true
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.utils.types import Tensor

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)
_CLASSES = {r"\p{L}": _LETTER, r"\p{N}": _NUMBER, r"\s": _SPACE}
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")


class Splitter:
    """Cuts texts into words at the matches of a regular expression.

    Args:
        pattern: str. One of `PATTERNS`.

    Call arguments:
        codes: int32 `(C,)`, code points.
        starts: bool `(C,)`, True at the first code point of each text.

    Returns:
        Bool `(C,)`, True at the first code point of each word.
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = PATTERNS[pattern]
        classes = np.full(LIMIT, _OTHER, "int32")
        for expression, number in _CLASSES.items():
            classes[matches(expression)] = number
        self._table = PagedTable(classes)

    def __call__(self, codes: Tensor, starts: Tensor) -> Tensor:
        text = _Characters(codes, look_up(self._table, codes), starts)
        ends = text.places
        for alternative in reversed(self._alternatives):
            found = alternative(text)
            ends = tf.where(found > text.places, found, ends)
        return reached(ends, starts)


class DigitSplitter:
    """Makes each numeric character a word, and what is between them; as a `Splitter`."""

    def __init__(self) -> None:
        digits = library().pre_tokenizers.Digits(individual_digits=True)
        self._table = PagedTable((kinds(digits) == ISOLATED).astype("int32"))

    def __call__(self, codes: Tensor, starts: Tensor) -> Tensor:
        digit = look_up(self._table, codes)
        return tf.logical_or(starts, digit + before(digit, 0) > 0)


class _Characters:
    """The characters of texts, their classes, and what follows each of them within its text."""

    def __init__(self, codes: Tensor, classes: Tensor, first: Tensor) -> None:
        self.codes = codes
        self.places = tf.range(tf.size(codes))
        self.first = first
        self._last = after(flag(first), 1) > 0
        self.letter, self.number, self.space, self.other = (
            classes == each for each in (_LETTER, _NUMBER, _SPACE, _OTHER)
        )
        self.blank = codes == ord(" ")
        self.line_end = tf.logical_or(codes == 10, codes == 13)

    def next(self, condition: Tensor) -> Tensor:
        """A condition of the character that follows; False at the end of a text."""
        return tf.logical_and(after(flag(condition), 0) > 0, tf.logical_not(self._last))

    def run(self, condition: Tensor) -> Tensor:
        """The end of the run of characters that meet a condition, from each place on; the place itself without one."""
        stops = tf.logical_or(tf.logical_not(condition), self.first)
        return tf.where(condition, next_true(stops), self.places)

    def run_after(self, optional: Tensor, condition: Tensor) -> Tensor:
        """The end of a run, before which one further character may stand."""
        runs = self.run(condition)
        return tf.where(tf.logical_and(optional, self.next(condition)), after(runs, 0), runs)

    def begins(self, places: Tensor) -> Tensor:
        """Whether each place is the start of a text, or the end of all."""
        return tf.gather(tf.concat([flag(self.first), [1]], 0), places) > 0


def _contractions(folds_case: bool) -> Callable[[_Characters], Tensor]:
    """`'s|'t|'re|'ve|'m|'ll|'d`"""
    letters = {letter for suffix in _CONTRACTIONS for letter in suffix}

    def ends(text: _Characters) -> Tensor:
        codes = {each: np.array(same_letters(each) if folds_case else [ord(each)], "int32") for each in letters}
        is_letter = {each: tf.reduce_any(text.codes[:, None] == codes[each][None], axis=1) for each in sorted(letters)}
        found = text.places
        for suffix in _CONTRACTIONS:
            matched = tf.ones_like(text.blank)
            for letter in reversed(suffix):
                matched = text.next(tf.logical_and(is_letter[letter], matched))
            found = tf.where(matched, text.places + 1 + len(suffix), found)
        return tf.where(text.codes == ord("'"), found, text.places)

    return ends


def _letters(text: _Characters) -> Tensor:
    r"""` ?\p{L}+`"""
    return text.run_after(text.blank, text.letter)


def _letters_after_any(text: _Characters) -> Tensor:
    r"""`[^\r\n\p{L}\p{N}]?\p{L}+`"""
    barred = tf.logical_or(text.line_end, tf.logical_or(text.letter, text.number))
    return text.run_after(tf.logical_not(barred), text.letter)


def _numbers(text: _Characters) -> Tensor:
    r"""` ?\p{N}+`"""
    return text.run_after(text.blank, text.number)


def _digits(most: int) -> Callable[[_Characters], Tensor]:
    r"""`\p{N}{1,most}`"""
    return lambda text: tf.minimum(text.run(text.number), text.places + most)


def _others(text: _Characters) -> Tensor:
    r"""` ?[^\s\p{L}\p{N}]+`"""
    return text.run_after(text.blank, text.other)


def _others_with_line_ends(text: _Characters) -> Tensor:
    r"""` ?[^\s\p{L}\p{N}]+[\r\n]*`"""
    ends = _others(text)
    beyond = tf.gather(tf.concat([text.run(text.line_end), tf.shape(ends)], 0), ends)
    return tf.where(tf.logical_and(ends > text.places, tf.logical_not(text.begins(ends))), beyond, ends)


def _space_to_line_end(text: _Characters) -> Tensor:
    r"""`\s*[\r\n]+`"""
    ends = text.run(text.space)
    lines = indices(text.line_end)
    counts = tf.concat([[0], tf.cumsum(flag(text.line_end))], 0)
    number = tf.gather(counts, ends)
    last = tf.gather(tf.concat([lines, [0]], 0), tf.maximum(number - 1, 0))
    return tf.where(number > tf.gather(counts, text.places), last + 1, text.places)


def _space_before_space(text: _Characters) -> Tensor:
    r"""`\s+(?!\S)`"""
    ends = text.run(text.space)
    return tf.where(text.begins(ends), ends, tf.maximum(ends - 1, text.places))


def _spaces(text: _Characters) -> Tensor:
    r"""`\s+`"""
    return text.run(text.space)


def reached(ends: Tensor, first: Tensor) -> Tensor:
    """Where words begin, if a word that begins at a place ends at `ends`. The steps double."""
    size = tf.shape(ends)
    sink = size[0]

    def step(reached: Tensor, jump: Tensor, _: Tensor) -> list[Tensor]:
        places = tf.gather(jump, indices(reached > 0))
        more = tf.minimum(reached + marked(places, sink + 1), 1)
        return [more, tf.gather(jump, jump), tf.reduce_sum(more) - tf.reduce_sum(reached)]

    reached = tf.concat([flag(first), [1]], 0)
    jump = tf.concat([ends, size], 0)
    state = loop(lambda reached, jump, new: new > 0, step, [reached, jump, tf.constant(1)])
    return state[0][:-1] > 0


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_FOLDED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDS = (_others_with_line_ends, _space_to_line_end, _space_before_space, _spaces)
# Pattern to its alternatives, of which the first that matches counts.
PATTERNS = {
    _GPT2: (_contractions(False), _letters, _numbers, _others, _space_before_space, _spaces),
    _FOLDED % r"\p{N}": (_contractions(True), _letters_after_any, _digits(1), *_ENDS),
    _FOLDED % r"\p{N}{1,3}": (_contractions(True), _letters_after_any, _digits(3), *_ENDS),
}
GPT2 = _GPT2
