"""The merges of byte-pair encoding in a graph: one merge of every word at a time."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import LARGE, after, before, flag, gather, indices, loop
from keras_transformer.utils.types import Tensor


class Merges:
    """Applies merges within words: always the one of the lowest rank, and of several places the first.

    Args:
        merges: dict of two ids to the rank of their merge and the id that it makes. Merges may share a rank.
        size: number of ids.

    Call arguments:
        ids: int32 `(M,)`, the ids of words one after another.
        starts: bool `(M,)`, True at the first id of each word.

    Returns:
        The merged ids, and the place in `ids` at which each begins, int32 `(T,)` both; in the order of the places.
    """

    def __init__(self, merges: Mapping[tuple[int, int], tuple[int, int]], size: int) -> None:
        ordered = sorted(merges, key=lambda pair: merges[pair][0])
        self._table = PairTable({pair: number for number, pair in enumerate(ordered)}, size, size)
        self._made = [merges[pair][1] for pair in ordered] or [0]
        ranks = [merges[pair][0] for pair in ordered]
        # Without equal ranks, the order is that of the numbers.
        self._ranks = ranks if len({*ranks}) < len(ranks) else None

    def __call__(self, ids: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        size = tf.size(ids)
        none = tf.zeros([0], tf.int32)
        state = [ids, flag(starts), tf.range(size), none, none]
        *_, done, places = loop(lambda ids, *_: tf.size(ids) > 0, self._step, state)
        # The places are those of a part of the ids, in no order.
        merged = tf.scatter_nd(places[:, None], done + 1, size[None])
        kept = indices(merged > 0)
        return tf.gather(merged, kept) - 1, kept

    def _step(self, ids: Tensor, starts: Tensor, places: Tensor, done: Tensor, done_places: Tensor) -> list[Tensor]:
        word = tf.cumsum(starts) - 1
        words = tf.reduce_sum(starts)
        right = after(ids, 0)
        slot = gather(self._table.starts, ids) + right
        known = tf.logical_and(gather(self._table.owners, slot) == ids, after(starts, 1) == 0)
        pair = gather(self._table.values, slot)
        rank = tf.where(known, pair if self._ranks is None else gather(self._ranks, pair), LARGE)
        lowest = tf.gather(tf.math.unsorted_segment_min(rank, word, words), word)
        number = tf.range(tf.size(ids))
        chosen = tf.where(tf.logical_and(known, rank == lowest), number, LARGE)
        merges = tf.gather(tf.math.unsorted_segment_min(chosen, word, words), word) == number
        ids = tf.where(merges, gather(self._made, pair), ids)
        finished = lowest == LARGE
        out = indices(finished)
        kept = indices(tf.logical_not(tf.logical_or(finished, before(flag(merges), 0) > 0)))
        return [
            tf.gather(ids, kept),
            tf.gather(starts, kept),
            tf.gather(places, kept),
            tf.concat([done, tf.gather(ids, out)], 0),
            tf.concat([done_places, tf.gather(places, out)], 0),
        ]
