"""The precompiled character maps of SentencePiece models."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping

import numpy as np


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


def rules_of(replacements: Mapping[str, str]) -> Rules:
    """The `Rules` of texts and what replaces them.

    Args:
        replacements: dict of text, not empty, to text.

    Example:

    >>> rules = rules_of({"a": "b", "ac": ""})
    >>> rules.first, rules.edges, rules.values, rules.texts
    ({'a': 0}, {(0, 'c'): 1}, {0: 0, 1: 1}, ['b', ''])
    """
    states: dict[str, int] = {}
    for text in replacements:
        for size in range(1, len(text) + 1):
            states.setdefault(text[:size], len(states))
    first = {text: state for text, state in states.items() if len(text) == 1}
    edges = {(states[text[:-1]], text[-1]): state for text, state in states.items() if len(text) > 1}
    texts = list(dict.fromkeys(replacements.values()))
    numbers = {text: number for number, text in enumerate(texts)}
    return Rules(first, edges, {states[text]: numbers[made] for text, made in replacements.items()}, texts)


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
