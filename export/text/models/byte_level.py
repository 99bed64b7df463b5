"""Byte-level byte-pair encoding in a graph: added tokens, words, and merges of their bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.byte_pairs import Merges
from keras_transformer.export.text.models.words import reached
from keras_transformer.export.text.normalization.composition import Composition
from keras_transformer.export.text.normalization.utf8 import utf8_of
from keras_transformer.export.text.steps import before, code_points, flag, gather, indices, marked, next_true, repeated
from keras_transformer.export.text.trie import byte_trie
from keras_transformer.utils.types import Tensor

Cut = Callable[[Tensor, Tensor], Tensor]


class ByteLevelSteps:
    """Ids of texts by byte-level BPE.

    Args:
        byte_ids: the id of each byte.
        splitters: functions of code points and the starts of pieces to the starts of smaller ones, such as `Splitter`.
        merges: `Merges`.
        prefix: `Prefix`, or None.
        added: dict of the bytes of added tokens, which are found in texts before anything else, to their ids.
        whole: dict of the bytes of words to their ids, which merges would not make.
        composition: `Composition` for texts that are normalized (NFC), or None.

    Call arguments:
        values: int32 `(N,)`, bytes of texts.
        rows: int32 `(N,)`, the number of the text of each.

    Returns:
        Ids and the number of the text of each, int32 `(T,)`.
    """

    def __init__(
        self,
        byte_ids: Sequence[int],
        splitters: Sequence[Cut],
        merges: Merges,
        prefix: Prefix | None,
        added: Mapping[bytes, int],
        whole: Mapping[bytes, int],
        composition: Composition | None = None,
    ) -> None:
        self._byte_ids = np.array(byte_ids, "int32")
        self._splitters, self._merges, self._prefix = splitters, merges, prefix
        self._added = byte_trie(added) if added else None
        self._whole = byte_trie(whole) if whole else None
        self._composition = composition

    def __call__(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self._prefix is not None:
            values, rows = self._prefix(values, rows)
        first = before(rows, -1) != rows
        forced = tf.zeros_like(values) - 1  # Ids of added tokens.
        if self._added is not None:
            values, rows, forced, first = self._with_added(values, rows, first)
        if self._composition is not None:
            values, rows, forced, first = self._composed(values, rows, forced, first)
        ids = tf.where(forced >= 0, forced, gather(self._byte_ids, values))
        codes, places = code_points(values)
        starts = tf.gather(flag(first), places) > 0
        for splitter in self._splitters:
            starts = splitter(codes, starts)
        begins = marked(tf.gather(places, indices(starts)), tf.size(values)) > 0
        if self._whole is not None:
            rows, ids, begins = self._with_whole(values, rows, ids, begins)
        found, where = self._merges(ids, begins)
        return found, tf.gather(rows, where)

    def _with_added(self, values: Tensor, rows: Tensor, first: Tensor) -> tuple[Tensor, ...]:
        """Makes each added token one byte with its id, and a piece of its own."""
        assert self._added is not None
        found, lengths = self._added(values, tf.zeros_like(values), next_true(first))
        places = tf.range(tf.size(values))
        is_token = tf.logical_and(reached(places + tf.maximum(lengths, 1), first), found >= 0)
        ends = marked(tf.gather(places + lengths, indices(is_token)), tf.size(values) + 1)[:-1] > 0
        # A token lasts from its start to its end.
        inside = tf.cumsum(flag(is_token) - flag(ends)) > 0
        first = tf.logical_or(first, tf.logical_or(is_token, ends))
        kept = indices(tf.logical_or(is_token, tf.logical_not(inside)))
        forced = tf.where(is_token, found, -1)
        # Any byte that is a character by itself stands for the token.
        values = tf.where(is_token, ord("a"), values)
        return tuple(tf.gather(each, kept) for each in (values, rows, forced, first))

    def _composed(self, values: Tensor, rows: Tensor, forced: Tensor, first: Tensor) -> tuple[Tensor, ...]:
        """Bytes of the normalized text."""
        assert self._composition is not None
        codes, places = code_points(values)
        arrays = [tf.gather(each, places) for each in (rows, forced, flag(first))]
        codes, rows, forced, first = self._composition(codes, arrays[0], arrays[1], arrays[2] > 0)
        values, item, offset = utf8_of(codes)
        is_start = offset == 0
        forced = tf.where(is_start, tf.gather(forced, item), -1)
        return values, tf.gather(rows, item), forced, tf.logical_and(is_start, tf.gather(flag(first), item) > 0)

    def _with_whole(self, values: Tensor, rows: Tensor, ids: Tensor, begins: Tensor) -> tuple[Tensor, ...]:
        """Makes each word that is a token one byte with its id."""
        assert self._whole is not None
        ends = next_true(begins)
        is_own = tf.logical_and(begins, ids == gather(self._byte_ids, values))  # And no added token.
        found, lengths = self._whole(values, tf.where(is_own, 0, -1), ends)
        is_token = tf.logical_and(found >= 0, tf.range(tf.size(values)) + lengths == ends)
        word = tf.cumsum(flag(begins)) - 1
        known = tf.gather(flag(is_token), indices(begins))
        kept = indices(tf.logical_or(begins, tf.gather(known, word) == 0))
        return tuple(tf.gather(each, kept) for each in (rows, tf.where(is_token, found, ids), begins))


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Puts bytes before each text that has any, unless it begins with some bytes.

    Args:
        content: the bytes.
        skips: bytes of which a text that begins with them gets no more.
    """

    content: bytes
    skips: tuple[bytes, ...] = ()

    def __call__(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        first = before(rows, -1) != rows
        for skipped in self.skips:
            first = tf.logical_and(first, tf.logical_not(_follow(values, skipped)))
        size = len(self.content)
        item, offset = repeated(1 + size * flag(first))
        number = offset - tf.gather(size * flag(first), item)
        own = gather(np.frombuffer(self.content, "uint8"), tf.minimum(offset, size - 1))
        return tf.where(number < 0, own, tf.gather(values, item)), tf.gather(rows, item)


def _follow(values: Tensor, wanted: bytes) -> Tensor:
    """Whether these bytes follow each place."""
    padded = tf.concat([values, tf.zeros([len(wanted)], tf.int32)], 0)
    size = tf.size(values)
    return tf.reduce_all(
        tf.stack([padded[number : size + number] == byte for number, byte in enumerate(wanted)]), axis=0
    )
