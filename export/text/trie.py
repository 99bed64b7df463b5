"""A set of sequences with a value each, and the longest of them at every place at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import gather, loop
from keras_transformer.utils.types import Tensor


class Automaton:
    """Finds the longest sequence that begins at each place, by states and the symbols that lead from one to another.

    Args:
        edges: dict of `(state, symbol)` to state.
        values: dict of state to the value of the sequences that end there.
        states: number of states.
        symbols: number of symbols.
        shortest: bool. Whether the shortest sequence is found instead.

    Call arguments:
        symbols: int32 `(N,)`, not empty.
        states: int32 `(N,)`, the state before the symbol of each place, -1 for places that are not looked at.
        ends: int32 `(N,)`, where the sequences of each place end at the latest.

    Returns:
        Value and length of the longest sequence at each place, int32 `(N,)`: -1 and 0 without one.
    """

    def __init__(
        self,
        edges: Mapping[tuple[int, int], int],
        values: Mapping[int, int],
        states: int,
        symbols: int,
        shortest: bool = False,
    ) -> None:
        self._edges = PairTable(edges, states, symbols)
        self._values = np.full(states, -1, "int32")
        self._values[list(values)] = list(values.values())
        self._shortest = shortest

    def __call__(self, symbols: Tensor, states: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:

        def step(state: Tensor, depth: Tensor, found: Tensor, lengths: Tensor) -> list[Tensor]:
            state, value = self._next(state, depth, symbols, ends)
            better = value >= 0
            if self._shortest:
                better = tf.logical_and(better, found < 0)
            return [state, depth + 1, tf.where(better, value, found), tf.where(better, depth + 1, lengths)]

        none = tf.zeros_like(symbols)
        state = loop(lambda state, *_: tf.reduce_any(state >= 0), step, [states, tf.constant(0), none - 1, none])
        return state[2], state[3]

    def every(self, symbols: Tensor, states: Tensor, ends: Tensor) -> Tensor:
        """The values of all sequences at each place, by their length.

        Args:
            symbols, states, ends: as in the call.

        Returns:
            Int32 `(D * N,)`: at `(length - 1) * N + place` the value of the sequence of that length, -1 without one. D is at
            least 1, and depends on the texts.
        """

        def step(state: Tensor, depth: Tensor, found: Tensor) -> list[Tensor]:
            state, value = self._next(state, depth, symbols, ends)
            return [state, depth + 1, tf.concat([found, value], 0)]

        state = [states, tf.constant(0), tf.zeros([0], tf.int32)]
        return loop(lambda state, *_: tf.reduce_any(state >= 0), step, state)[2]

    def _next(self, state: Tensor, depth: Tensor, symbols: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The state and the value after one more symbol of each place."""
        at = tf.range(tf.size(symbols)) + depth
        inside = tf.logical_and(state >= 0, at < ends)
        owner = tf.maximum(state, 0)
        slot = gather(self._edges.starts, owner) + tf.gather(symbols, tf.minimum(at, tf.size(symbols) - 1))
        known = tf.logical_and(inside, gather(self._edges.owners, slot) == owner)
        state = tf.where(known, gather(self._edges.values, slot), -1)
        return state, tf.where(known, gather(self._values, tf.maximum(state, 0)), -1)


class Trie(Automaton):
    """A set of sequences as an `Automaton`.

    Args:
        entries: iterable of `(set, sequence of symbols, value)`. The number of the set is the state that its sequences
            begin in.
        sets: number of sets.
        symbols: number of symbols.
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
        super().__init__(edges, values, size, symbols)


def byte_trie(values: Mapping[bytes, int]) -> Trie:
    """A `Trie` of byte strings in one set."""
    return Trie([(0, text, value) for text, value in values.items()], 1, 256)
