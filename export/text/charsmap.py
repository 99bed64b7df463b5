"""The precompiled character maps of SentencePiece models, and replacement of characters by their rules."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Collection, Iterator

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.code_points import LIMIT, PagedTable
from keras_transformer.export.text.graphemes import cluster_starts
from keras_transformer.export.text.steps import after, flag, gather, indices, look_up, next_true, repeated
from keras_transformer.export.text.trie import Automaton, Trie
from keras_transformer.export.text.words import reached
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules that replace texts, as an automaton over characters.

    Args:
        first: dict of a character to the state after it at the start of a text, of those that begin a rule.
        edges: dict of state and character to the next state.
        values: dict of state to the number of the text that replaces what was read.
        texts: the texts that replace others.
    """

    first: dict[str, int]
    edges: dict[tuple[int, str], int]
    values: dict[int, int]
    texts: list[str]


class _DoubleArray:
    """A trie of byte strings, as Darts-clone 0.32 stores it: units of 32 bits."""

    def __init__(self, content: bytes) -> None:
        self._units = np.frombuffer(content, "<u4").astype("int64")

    def base(self, node: int) -> int:
        """The index whose exclusive or with a byte is that of the child."""
        unit = int(self._units[node])
        return node ^ (unit >> 10) << (unit >> 6 & 8)

    def value(self, node: int) -> int | None:
        """The value of the string that ends at a node, None without one."""
        return int(self._units[self.base(node)]) & 0x7FFFFFFF if int(self._units[node]) >> 8 & 1 else None

    def characters(self, node: int) -> Iterator[tuple[str, int]]:
        """The characters of UTF-8 that follow a node, and the node after each."""
        stack = [(node, b"")]
        while stack:
            node, read = stack.pop()
            base = self.base(node)
            children = base ^ np.arange(1, 256)
            children = children[children < len(self._units)]
            for child in children[self._units[children] & 0x800000FF == children ^ base].tolist():
                found = read + bytes([child ^ base])
                if len(found) < _size(found[0]):
                    stack.append((child, found))
                else:
                    yield found.decode(), child


def _size(first: int) -> int:
    """The number of bytes of a character of UTF-8, by the first."""
    return 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)


def read_rules(charsmap: bytes) -> Rules:
    """The rules of a precompiled character map.

    Args:
        charsmap: bytes of the field `precompiled_charsmap`; may be empty.

    Reference:
        `Normalizer::DecodePrecompiledCharsMap` of SentencePiece 0.2: the size of a double-array trie, the trie, and texts
        that end with a zero byte. The trie maps a text to the place of what replaces it. It shares common ends.
    """
    if not charsmap:
        return Rules({}, {}, {}, [])
    (size,) = struct.unpack_from("<I", charsmap)
    array, content = _DoubleArray(charsmap[4 : 4 + size]), charsmap[4 + size :]
    states: dict[tuple[int, int | None], int] = {}
    edges: dict[tuple[int, str], int] = {}
    values: dict[int, int] = {}
    numbers: dict[int, int] = {}

    def state_of(node: int) -> int:
        key = array.base(node), array.value(node)
        if key not in states:
            states[key] = len(states)
            todo.append((states[key], node))
            if key[1] is not None:
                values[states[key]] = numbers.setdefault(key[1], len(numbers))
        return states[key]

    todo: list[tuple[int, int]] = []
    first = {character: state_of(node) for character, node in array.characters(0)}
    while todo:
        state, node = todo.pop()
        for character, child in array.characters(node):
            edges[state, character] = state_of(child)
    return Rules(first, edges, values, [content[at : content.index(0, at)].decode() for at in numbers])


# Clusters of fewer bytes are replaced as a whole.
_SHORT = 6


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
        continued = {state for state, _ in rules.edges}
        self._states = _table({each: state for each, state in rules.first.items() if state in continued}, -1)
        self._numbers = _table({each: rules.values.get(state, -1) for each, state in rules.first.items()}, -1)
        symbols = {each: number for number, each in enumerate(sorted({each for _, each in rules.edges}), 1)}
        self._symbols = symbol_table(symbols)
        edges = {(state, symbols[each]): following for (state, each), following in rules.edges.items()}
        states = 1 + max([*rules.first.values(), *edges.values()], default=0)
        self._longer = Automaton(edges, rules.values, states, len(symbols) + 1) if edges else None
        self._kept = TextTrie(dict.fromkeys(kept, 0)) if kept else None
        self._counts = np.array([*map(len, rules.texts)], "int32")
        self._starts = (np.cumsum(self._counts) - self._counts).astype("int32")
        self._codes = np.array([ord(each) for each in "".join(rules.texts)] or [0], "int32")

    def __call__(self, codes: Tensor, parts: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        ends = next_true(parts)
        numbers, lengths = look_up(self._numbers, codes), tf.ones_like(codes)
        if self._longer is not None:
            found, more = self._continued(self._longer, codes, ends)
            numbers, lengths = tf.where(found >= 0, found, numbers), lengths + more
        if self._kept is not None:
            found, sizes = self._kept(codes, ends)
            numbers, lengths = tf.where(found >= 0, -1, numbers), tf.where(found >= 0, sizes, lengths)
        numbers, lengths = tf.where(fixed, -1, numbers), tf.where(fixed, 1, lengths)
        return self._replaced(codes, numbers, lengths, parts)

    def _continued(self, longer: Automaton, codes: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The rule at each place of more than one character, and how many more."""
        symbols = after(look_up(self._symbols, codes), 0)
        return longer(symbols, look_up(self._states, codes), ends - 1)

    def _replaced(self, codes: Tensor, numbers: Tensor, lengths: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Replaces what begins at places, from the start of each part on; number -1 is that of a text that stays."""
        starts = indices(reached(tf.range(tf.size(codes)) + lengths, parts))
        number = tf.gather(numbers, starts)
        rule = tf.maximum(number, 0)
        item, offset = repeated(tf.where(number < 0, tf.gather(lengths, starts), gather(self._counts, rule)))
        is_same, start = tf.gather(number, item) < 0, tf.gather(starts, item)
        at = gather(self._starts, tf.gather(rule, item)) + offset
        made = gather(self._codes, tf.where(is_same, 0, at))
        return tf.where(is_same, tf.gather(codes, tf.where(is_same, start + offset, 0)), made), start


class ClusterReplacement(Replacement):
    """Replaces grapheme clusters and characters that have a rule, as the `tokenizers` library does.

    Of a cluster of less than 6 bytes, the shortest rule for its start replaces the whole of it. In others, and where there
    is none, the rule of each character replaces it.

    Args:
        rules: `Rules`.

    Call arguments, Returns: as a `Replacement`, of which none is fixed.

    Reference:
        `Precompiled` of tokenizers 0.23, and spm_precompiled 0.1.
    """

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        if self._longer is not None:
            self._longer.finds_shortest = True

    def __call__(self, codes: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        starts = cluster_starts(codes, parts)
        places, ends = tf.range(tf.size(codes)), next_true(starts)
        numbers, lengths = look_up(self._numbers, codes), tf.ones_like(codes)
        whole = numbers
        if self._longer is not None:
            whole = tf.where(numbers >= 0, numbers, self._continued(self._longer, codes, ends)[0])
        sizes = 1 + flag(codes >= 0x80) + flag(codes >= 0x800) + flag(codes >= 0x10000)
        passed = tf.concat([[0], tf.cumsum(sizes)], 0)
        is_short = tf.gather(passed, ends) - tf.gather(passed, places) < _SHORT
        is_whole = tf.logical_and(tf.logical_and(starts, is_short), whole >= 0)
        numbers, lengths = tf.where(is_whole, whole, numbers), tf.where(is_whole, ends - places, lengths)
        return self._replaced(codes, numbers, lengths, parts)


class TextTrie:
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
