"""Normalization of texts by the rules of a character map, in a graph."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.words import reached
from keras_transformer.export.text.normalization.charsmap import Rules
from keras_transformer.export.text.normalization.code_points import LIMIT, PagedTable
from keras_transformer.export.text.normalization.graphemes import cluster_starts
from keras_transformer.export.text.steps import after, flag, gather, indices, look_up, next_true, repeated
from keras_transformer.export.text.trie import Automaton, Trie
from keras_transformer.utils.types import Tensor

# Clusters of fewer bytes are replaced as a whole.
_SHORT = 6


class _RuleTables:
    """The rules as tables.

    Args:
        rules: `Rules`.
        shortest: bool. Whether the shortest text that has a rule is looked for, instead of the longest.
    """

    def __init__(self, rules: Rules, shortest: bool = False) -> None:
        continued = {state for state, _ in rules.edges}
        self._states = _table({each: state for each, state in rules.first.items() if state in continued}, -1)
        self._numbers = _table({each: rules.values.get(state, -1) for each, state in rules.first.items()}, -1)
        symbols = {each: number for number, each in enumerate(sorted({each for _, each in rules.edges}), 1)}
        self._symbols = symbol_table(symbols)
        edges = {(state, symbols[each]): following for (state, each), following in rules.edges.items()}
        states = 1 + max([*rules.first.values(), *edges.values()], default=0)
        self._longer = Automaton(edges, rules.values, states, len(symbols) + 1, shortest) if edges else None
        self._counts = np.array([*map(len, rules.texts)] or [0], "int32")
        self._starts = (np.cumsum(self._counts) - self._counts).astype("int32")
        self._codes = np.array([ord(each) for each in "".join(rules.texts)] or [0], "int32")

    def single(self, codes: Tensor) -> Tensor:
        """The number of the rule of each character alone, -1 for none."""
        return look_up(self._numbers, codes)

    def longer(self, codes: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the rule at each place that has more than one character, -1 for none; and how many more."""
        if self._longer is None:
            return tf.zeros_like(codes) - 1, tf.zeros_like(codes)
        symbols = after(look_up(self._symbols, codes), 0)
        return self._longer(symbols, look_up(self._states, codes), ends - 1)

    def replaced(self, codes: Tensor, numbers: Tensor, lengths: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Replaces what begins at places, from the start of each part on; number -1 is that of a text that stays."""
        starts = indices(reached(tf.range(tf.size(codes)) + lengths, parts))
        number = tf.gather(numbers, starts)
        rule = tf.maximum(number, 0)
        item, offset = repeated(tf.where(number < 0, tf.gather(lengths, starts), gather(self._counts, rule)))
        is_same, start = tf.gather(number, item) < 0, tf.gather(starts, item)
        at = gather(self._starts, tf.gather(rule, item)) + offset
        made = gather(self._codes, tf.where(is_same, 0, at))
        return tf.where(is_same, tf.gather(codes, tf.where(is_same, start + offset, 0)), made), start


class Replacement:
    """Replaces the longest text that has a rule, at each place from the start of a text to its end.

    Args:
        rules: `Rules`.
        kept: texts that stay as they are, which come before all rules.

    Call arguments:
        codes: int32 `(C,)`, code points.
        parts: bool `(C,)`, True at the start of each part of a text. Rules do not go beyond a part.
        fixed: bool `(C,)`, True for characters that stay as they are.

    Returns:
        Code points, and for each of them the index in `codes` at which what it stands for begins.

    Reference:
        `Normalizer::NormalizePrefix` of SentencePiece 0.2.
    """

    def __init__(self, rules: Rules, kept: Collection[str] = ()) -> None:
        self._rules = _RuleTables(rules)
        self._kept = _TextTrie(dict.fromkeys(kept, 0)) if kept else None

    def __call__(self, codes: Tensor, parts: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        ends = next_true(parts)
        found, more = self._rules.longer(codes, ends)
        numbers, lengths = tf.where(found >= 0, found, self._rules.single(codes)), 1 + more
        if self._kept is not None:
            found, sizes = self._kept(codes, ends)
            numbers, lengths = tf.where(found >= 0, -1, numbers), tf.where(found >= 0, sizes, lengths)
        numbers, lengths = tf.where(fixed, -1, numbers), tf.where(fixed, 1, lengths)
        return self._rules.replaced(codes, numbers, lengths, parts)


class ClusterReplacement:
    """Replaces grapheme clusters and characters that have a rule, as the `tokenizers` library does.

    Of a cluster of less than 6 bytes, the shortest rule for its start replaces the whole of it. In others, and where there
    is none, the rule of each character replaces it.

    Args:
        rules: `Rules`.

    Call arguments:
        codes: int32 `(C,)`, code points.
        parts: bool `(C,)`, True at the start of each text.

    Returns:
        As a `Replacement`.

    Reference:
        `Precompiled` of tokenizers 0.23, and spm_precompiled 0.1.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = _RuleTables(rules, shortest=True)

    def __call__(self, codes: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        starts = cluster_starts(codes, parts)
        places, ends = tf.range(tf.size(codes)), next_true(starts)
        single = self._rules.single(codes)
        whole = tf.where(single >= 0, single, self._rules.longer(codes, ends)[0])
        sizes = 1 + flag(codes >= 0x80) + flag(codes >= 0x800) + flag(codes >= 0x10000)
        passed = tf.concat([[0], tf.cumsum(sizes)], 0)
        is_short = tf.gather(passed, ends) - tf.gather(passed, places) < _SHORT
        is_whole = tf.logical_and(tf.logical_and(starts, is_short), whole >= 0)
        numbers, lengths = tf.where(is_whole, whole, single), tf.where(is_whole, ends - places, 1)
        return self._rules.replaced(codes, numbers, lengths, parts)


class _TextTrie:
    """The longest of some texts at each place.

    Args:
        values: dict of text to a value.

    Call arguments:
        codes: int32 `(C,)`, code points.
        ends: int32 `(C,)`, where the texts of each place end at the latest.

    Returns:
        As a `Trie`.
    """

    def __init__(self, values: dict[str, int]) -> None:
        symbols = {each: number for number, each in enumerate(sorted(set("".join(values))), 1)}
        self._symbols = symbol_table(symbols)
        entries = [(0, [symbols[each] for each in text], value) for text, value in values.items()]
        self._trie = Trie(entries, 1, len(symbols) + 1)

    def __call__(self, codes: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        symbols = look_up(self._symbols, codes)
        return self._trie(symbols, tf.where(symbols > 0, 0, -1), ends)


def symbol_table(symbols: dict[str, int]) -> PagedTable:
    """The table of the numbers of characters, 0 for others."""
    return _table(symbols, 0)


def _table(values: dict[str, int], other: int) -> PagedTable:
    found = np.full(LIMIT, other, "int32")
    found[[ord(each) for each in values]] = list(values.values())
    return PagedTable(found)
