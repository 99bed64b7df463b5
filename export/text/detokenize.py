"""A detokenizer as a function of tensors: rows of ids to texts as rows of bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.bundle.tokenizers import BYTES, LENGTHS
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.text.graph import IDS, MASK
from keras_transformer.export.text.normalization.utf8 import repaired
from keras_transformer.export.text.steps import before, flag, gather, indices, repeated, scattered
from keras_transformer.export.text.tokenizer_parts import parts_of
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer


@dataclasses.dataclass(frozen=True)
class Pieces:
    """What each id adds to a text.

    Args:
        first: bytes of each id at the start of a text; none of special tokens.
        later: the same, elsewhere.
        is_byte: bool for each id, or None. Bytes of such ids that follow each other are replaced together where they are
            no UTF-8.
        drops_space: bool. Whether a space at the start of a text is left out.
    """

    first: Sequence[bytes]
    later: Sequence[bytes]
    is_byte: Sequence[bool] | None = None
    drops_space: bool = False


def pieces_of(tokenizer: Any) -> Pieces:
    """What each id of a tokenizer adds to a text.

    Raises:
        InvalidModelError: the tokenizer decodes in another way.
    """
    if tokenizer.kind in ("wordpiece", "byte_pair", "bytes", "sentencepiece"):
        table = tokenizer._token_table(skip_special_tokens=True)
        return Pieces(table, table, drops_space=tokenizer._drops_first_space)
    if tokenizer.kind != "hugging_face":
        raise _unsupported(f"a tokenizer of the kind '{tokenizer.kind}'")
    decoder = tokenizer._decoder
    if decoder.clean_up_spaces or decoder._word_end or decoder._has_timestamps or decoder._prompt_id is not None:
        raise _unsupported("a tokenizer whose texts transformers changes after decoding")
    skipped = {each["id"] for each in tokenizer.content.get("added_tokens") or () if each["special"]}
    kinds = [each["type"] for each in parts_of(tokenizer.content.get("decoder"))]
    if kinds == ["ByteLevel"]:
        table = [b"" if index in skipped else each for index, each in enumerate(tokenizer.token_bytes())]
        return Pieces(table, table)
    if kinds in (["WordPiece"], ["Metaspace"]):
        decode = tokenizer._tokenizer.decoder.decode
        tokens = [None if each in skipped else tokenizer.id_to_token(each) for each in range(tokenizer.vocabulary_size)]
        first = [b"" if each is None else decode([each]).encode() for each in tokens]
        later = [b"" if each is None else decode(["a", each])[1:].encode() for each in tokens]
        return Pieces(first, later)
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and _strips(tokenizer.content) is not None:
        table = [b"" if index in skipped else each for index, each in enumerate(tokenizer.token_bytes())]
        is_byte = [index in decoder.byte_ids for index in range(len(table))]
        return Pieces(table, table, is_byte, bool(_strips(tokenizer.content)))
    raise _unsupported(f"a decoder of {', '.join(kinds) or 'no kind'}")


def _unsupported(what: str) -> InvalidModelError:
    return InvalidModelError(f"{what} cannot be part of a detokenizer's file")


def _strips(content: Mapping[str, Any]) -> int | None:
    """How many spaces the decoder strips at the start of a text; None if it does something else too."""
    rest = parts_of(content["decoder"])[3:]
    if not rest:
        return 0
    known = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return 1 if rest == [known] else None


class DetokenizeGraph:
    """`tokenizer.decode(ids)` as bytes.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.

    Call arguments:
        tensors: dict of "token_ids", int32 `(B, T)`, ids of the vocabulary; and "padding_mask", bool `(B, T)`.

    Returns:
        Dict of "bytes", uint8 `(B, N)`: the UTF-8 of each text from the start of its row, without special tokens; N
        is at least 1. And "lengths", int32 `(B,)`.

    Raises:
        InvalidModelError: the tokenizer decodes in another way than token by token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        pieces = pieces_of(tokenizer)
        self._drops_space, self._is_byte = pieces.drops_space, pieces.is_byte
        self._size = len(pieces.first)
        # Where the entries of the rest of a text begin.
        self._later = 0 if pieces.first == pieces.later else self._size
        table = [*pieces.first, *pieces.later] if self._later else pieces.first
        self._counts = np.array([len(each) for each in table], "int32")
        self._starts = (np.cumsum(self._counts) - self._counts).astype("int32")
        self._content = np.frombuffer(b"".join(table), "uint8")

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = tensors[IDS]
        batch, width = tf.unstack(tf.shape(given))
        ids = tf.clip_by_value(tf.reshape(given, [-1]), 0, self._size - 1)
        is_text = gather(self._counts, ids) + gather(self._counts, ids + self._later) > 0
        kept = indices(tf.logical_and(tf.reshape(tensors[MASK], [-1]), is_text))
        ids, rows = tf.gather(ids, kept), kept // tf.maximum(width, 1)
        # A last text that no array may be empty.
        ids, rows = tf.concat([ids, [self._sample()]], 0), tf.concat([rows, batch[None]], 0)
        places = ids + self._later * flag(before(rows, -1) == rows)
        token, offset = repeated(gather(self._counts, places))
        at = tf.gather(gather(self._starts, places), token) + offset
        values = tf.cast(tf.gather(tf.constant(self._content), at), tf.int32)
        rows_of = tf.gather(rows, token)
        if self._is_byte is None:
            values, item = repaired(values, rows_of)
        else:
            values, item = repaired(values, *self._units(tf.gather(ids, token), token, rows_of))
        rows = tf.gather(rows_of, item)
        if self._drops_space:
            stays = tf.logical_or(before(rows, -1) == rows, values != ord(" "))
            kept = indices(stays)
            values, rows = tf.gather(values, kept), tf.gather(rows, kept)
        return _as_rows(values, rows, batch)

    def _sample(self) -> int:
        """An id that is a text with no space at its start."""
        return next(
            index
            for index in range(self._size)
            if self._counts[index] and self._content[self._starts[index]] not in b" "
        )

    def _units(self, ids: Tensor, token: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """A number for each run of byte tokens and each other token, and whether it is such a run."""
        is_byte = gather(np.array(self._is_byte, "int32"), ids)
        continues = tf.logical_and(before(is_byte, 0) + is_byte == 2, before(rows, -1) == rows)
        begins = tf.logical_and(before(token, -1) != token, tf.logical_not(continues))
        return tf.cumsum(flag(begins)), is_byte > 0


def _as_rows(values: Tensor, rows: Tensor, batch: Tensor) -> dict[str, Tensor]:
    """Bytes of texts one after another as rows, without those of the last text."""
    kept = indices(rows < batch)
    values, rows = tf.gather(values, kept), tf.gather(rows, kept)
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, batch)
    width = tf.maximum(tf.reduce_max(lengths), 1)  # LiteRT returns no empty arrays.
    places = tf.range(tf.size(rows)) - tf.gather(tf.cumsum(lengths) - lengths, rows)
    return {BYTES: tf.cast(scattered(rows, places, values, batch, width), tf.uint8), LENGTHS: lengths}
