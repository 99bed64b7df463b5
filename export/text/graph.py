"""A tokenizer as a function of tensors: texts as rows of bytes to rows of ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_transformer.export.bundle.tokenizers import BYTES, LENGTHS
from keras_transformer.export.text.encoders import encoder_of
from keras_transformer.export.text.steps import LARGE, flat_bytes, indices, scattered
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

IDS, MASK, SEGMENTS = "token_ids", "padding_mask", "segment_ids"


class TokenizeGraph:
    """`tokenizer(texts, **options)` on the bytes of the texts.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.
        options: dict of "start", "end" and "max_length", as `Tokenizer.encode` takes them.
        width: int or None. The number of columns, not below `max_length`; by default that of the longest row.

    Call arguments:
        tensors: dict of "bytes", uint8 `(B, N)`: UTF-8, each text from the start of its row; and "lengths", int32
            `(B,)`: the numbers of bytes.

    Returns:
        Dict of "token_ids", int32 `(B, T)`, and "padding_mask", bool `(B, T)`; T is at least 1.

    Raises:
        InvalidModelError: the tokenizer cannot be a graph; the message names the part of it.
    """

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Any], width: int | None = None) -> None:
        frame = tokenizer._post_processor
        self._before = frame(True, False, None)([]) if options.get("start") else []
        self._after = frame(False, True, None)([]) if options.get("end") else []
        self._longest, self._width = options.get("max_length"), width
        self._pad = tokenizer.pad_id or 0
        self._pads_left = getattr(tokenizer, "padding_side", "right") == "left"
        self._cuts_left = getattr(tokenizer, "truncation_side", "right") == "left"
        self._encoder = encoder_of(tokenizer)

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        lengths = tensors[LENGTHS]
        return self.encoded(*flat_bytes(tensors[BYTES], lengths), tf.size(lengths))

    def encoded(self, values: Tensor, rows: Tensor, batch: Tensor) -> dict[str, Tensor]:
        """The outputs for bytes of texts one after another, as `flat_bytes` returns them."""
        ids, rows = self._encoder(values, rows)
        kept = indices(rows < batch)
        return self._framed(tf.gather(ids, kept), tf.gather(rows, kept), batch)

    def _framed(self, ids: Tensor, rows: Tensor, batch: Tensor) -> dict[str, Tensor]:
        """Rows of ids, cut, with the tokens of the template, and padded."""
        frame = len(self._before) + len(self._after)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(ids), rows, batch)
        places = tf.range(tf.size(ids)) - tf.gather(tf.cumsum(counts) - counts, rows)
        room = LARGE if self._longest is None else self._longest - frame
        if self._cuts_left:
            places = places - tf.maximum(tf.gather(counts, rows) - room, 0)
        inside = indices(tf.logical_and(places >= 0, places < room))
        counts = tf.minimum(counts, room)
        totals = counts + frame
        # LiteRT returns no empty arrays.
        width = tf.maximum(tf.reduce_max(totals), 1) if self._width is None else tf.constant(self._width)
        shift = width - totals if self._pads_left else tf.zeros_like(totals)
        rows, places = tf.gather(rows, inside), tf.gather(places, inside) + len(self._before)
        every = tf.range(batch)
        parts = [(rows, places, tf.gather(ids, inside))]
        parts += [
            (every, tf.zeros_like(every) + place, tf.zeros_like(every) + each)
            for place, each in enumerate(self._before)
        ]
        last = counts + len(self._before)
        parts += [(every, last + place, tf.zeros_like(every) + each) for place, each in enumerate(self._after)]
        rows, places, ids = (tf.concat(each, 0) for each in zip(*parts, strict=True))
        table = scattered(rows, places + tf.gather(shift, rows), ids - self._pad, batch, width) + self._pad
        column = tf.range(width)[None] - shift[:, None]
        mask = tf.logical_and(column >= 0, column < totals[:, None])
        return {IDS: table, MASK: mask}
