"""The segmentation of the highest score (Viterbi) in a graph: one character of every text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.words import reached
from keras_transformer.export.text.steps import indices, loop, next_true
from keras_transformer.export.text.trie import Trie
from keras_transformer.utils.types import Tensor


class BestPath:
    """Cuts texts into the pieces whose scores have the highest sum. Of several, those of the longer piece at the end.

    Sums are formed as the library forms them, one piece after another in the type of the scores, so that rounding selects
    the same pieces.

    Args:
        pieces: list of `(sequence of symbols, id)`.
        symbols: number of symbols. Symbol 0 is in no piece.
        scores: array of the score of each id, float32 or int64.
        unknown: score of a character that is no piece.
        farthest: float or None. Where a sum is farther from 0, sums start from 0 again.

    Call arguments:
        symbols: int32 `(C,)`.
        starts: bool `(C,)`, True at the first character of each text.

    Returns:
        Where pieces end, int32 `(T,)`; their lengths and ids, -1 for a character that is no piece, int32 `(T,)`.

    Reference:
        Kudo 2018, "Subword regularization", section 3.2; `Model::EncodeOptimized` of SentencePiece 0.2.
    """

    def __init__(
        self,
        pieces: Sequence[tuple[Sequence[int], int]],
        symbols: int,
        scores: np.ndarray,
        unknown: Any,
        farthest: float | None = None,
    ) -> None:
        self._trie = Trie([(0, sequence, index) for sequence, index in pieces], 1, symbols)
        self._scores, self._unknown, self._farthest = scores, unknown, farthest
        # No sum of scores is lower.
        self._never = scores.dtype.type(-1e30 if scores.dtype == np.float32 else -(2**60))

    def __call__(self, symbols: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size, ends = tf.size(symbols), next_true(starts)
        ids, widths = self._candidates(symbols, ends)
        lengths = self._lengths(self._scores_of(ids), widths, starts, ends)
        # From the end of each text to its start.
        last = tf.reverse(tf.concat([starts[1:], [True]], 0), [0])
        stops = tf.reverse(reached(tf.range(size) + tf.reverse(lengths, [0]), last), [0])
        places = indices(stops)
        lengths = tf.gather(lengths, places)
        width = tf.size(widths)
        return places, lengths, tf.gather(tf.reshape(ids, [-1]), (places + 1) * width - lengths)

    def _candidates(self, symbols: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The ids of the pieces that end at each place, `(C, D)`, -1 for none; and their lengths `(D,)`, falling to 1."""
        size, places = tf.size(symbols), tf.range(tf.size(symbols))
        found = self._trie.every(symbols, tf.where(symbols > 0, 0, -1), ends)
        widths = tf.range(tf.size(found) // size, 0, -1)
        begins = places[:, None] - widths[None] + 1
        ids = tf.gather(found, (widths - 1)[None] * size + tf.maximum(begins, 0))
        return tf.where(begins >= 0, ids, -1), widths

    def _scores_of(self, ids: Tensor) -> Tensor:
        scores = tf.gather(tf.constant(self._scores), tf.maximum(ids, 0))
        missing = tf.where(tf.range(tf.shape(ids)[1], 0, -1) == 1, tf.constant(self._unknown), self._never)
        return tf.where(ids >= 0, scores, missing[None])

    def _lengths(self, scores: Tensor, widths: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The length of the last piece of the best path to each place."""
        places = indices(starts)
        empty = tf.zeros_like(places)[:, None] + tf.zeros_like(widths)[None]
        # The scores of the paths to the places before, that of the start in the last column.
        window = tf.where(empty + widths[None] == 1, tf.zeros([], scores.dtype), self._never)
        none = tf.zeros([0], tf.int32)
        state = [places, tf.gather(ends, places), window, tf.cast(empty, scores.dtype), none, none]

        def step(
            places: Tensor, ends: Tensor, window: Tensor, passed: Tensor, done: Tensor, found: Tensor
        ) -> list[Tensor]:
            sums = tf.gather(scores, places) + window - passed
            best = tf.reduce_max(sums, 1)
            length = tf.reduce_max(tf.where(sums == best[:, None], widths[None], 0), 1)
            done, found = tf.concat([done, places], 0), tf.concat([found, length], 0)
            best, passed = self._restarted(best, passed)
            kept = indices(places + 1 < ends)
            window = tf.concat([window[:, 1:], best[:, None]], 1)
            return [*(tf.gather(each, kept) for each in (places + 1, ends, window, passed)), done, found]

        *_, done, found = loop(lambda places, *_: tf.size(places) > 0, step, state)
        return tf.scatter_nd(done[:, None], found, tf.shape(starts))

    def _restarted(self, best: Tensor, passed: Tensor) -> tuple[Tensor, Tensor]:
        """The sums to a place, and what is taken from later sums of pieces that begin before it."""
        if self._farthest is None:
            return best, passed
        taken = tf.where(tf.abs(best) > self._farthest, best, tf.zeros_like(best))
        passed = passed[:, 1:] + taken[:, None]
        return best - taken, tf.concat([passed, tf.zeros_like(taken)[:, None]], 1)
