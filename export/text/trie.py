"""A set of sequences with a value each, and the longest of them at every place at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import gather, loop
from keras_transformer.utils.types import Tensor


class Trie:
    """Finds the longest sequence that begins at each place.

    Args:
        entries: iterable of `(set, sequence of symbols, value)`. A place looks in one of the sets only.
        sets: number of sets.
        symbols: number of symbols.

    Call arguments:
        symbols: int32 `(N,)`, not empty.
        sets: int32 `(N,)`, the set that is looked in at each place, -1 for none.
        ends: int32 `(N,)`, where the sequences of each place end at the latest.

    Returns:
        Value and length of the longest sequence at each place, int32 `(N,)`: -1 and 0 without one.
    """

    def __init__(self, entries: Iterable[tuple[int, Sequence[int], int]], sets: int, symbols: int) -> None:
        edges: dict[tuple[int, int], int] = {}
        values: dict[int, int] = {}
        size = sets
        for state, sequence, value in entries:
            for symbol in sequence:
                if (state, symbol) not in edges:
                    edges[state, symbol], size = size, size + 1
                state = edges[state, symbol]
            if len(sequence):
                values[state] = value
        self._edges = PairTable(edges, size, symbols)
        self._values = np.full(size, -1, "int32")
        self._values[list(values)] = list(values.values())

    def __call__(self, symbols: Tensor, sets: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        places = tf.range(tf.size(symbols))

        def step(state: Tensor, depth: Tensor, found: Tensor, lengths: Tensor) -> list[Tensor]:
            inside = tf.logical_and(state >= 0, places + depth < ends)
            at = tf.minimum(places + depth, tf.size(symbols) - 1)
            owner = tf.maximum(state, 0)
            slot = gather(self._edges.starts, owner) + tf.gather(symbols, at)
            known = tf.logical_and(inside, gather(self._edges.owners, slot) == owner)
            state = tf.where(known, gather(self._edges.values, slot), -1)
            value = tf.where(known, gather(self._values, tf.maximum(state, 0)), -1)
            better = value >= 0
            return [state, depth + 1, tf.where(better, value, found), tf.where(better, depth + 1, lengths)]

        none = tf.zeros_like(symbols)
        state = loop(lambda state, *_: tf.reduce_any(state >= 0), step, [sets, tf.constant(0), none - 1, none])
        return state[2], state[3]


def byte_trie(values: Mapping[bytes, int]) -> Trie:
    """A `Trie` of byte strings in one set."""
    return Trie([(0, text, value) for text, value in values.items()], 1, 256)
