"""Models of SentencePiece in a graph: its normalization, its spaces, and characters without a piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_transformer.export.text.models.byte_level import Prefix
from keras_transformer.export.text.models.sentencepiece_bpe import BytePairPieces
from keras_transformer.export.text.models.sentencepiece_unigram import UnigramPieces
from keras_transformer.export.text.normalization.charsmap import read_rules
from keras_transformer.export.text.normalization.replacement import Replacement
from keras_transformer.export.text.normalization.utf8 import utf8_of
from keras_transformer.export.text.steps import before, code_points, flag, gather, indices, next_true
from keras_transformer.export.text.tokenizer_parts import unsupported
from keras_transformer.text.tokenizers.sentencepiece_model import (
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    read_charsmap,
    read_pieces,
    read_spacing,
)
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text import SentencePiece

_BLANK, _MARK = ord(" "), ord(SPACE)
# A code point that is no character, and in no piece.
_NO_PIECE = 0x10FFFF
# Type of a model to what finds its pieces: a function of code points and the starts of texts to where pieces end, and
# their ids, -1 for a character without a piece.
_MODELS: dict[str, Callable[[Any], Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    "unigram": UnigramPieces,
    "bpe": BytePairPieces,
}


class SentencePieceSteps:
    """Ids of texts by a model of SentencePiece.

    Args:
        tokenizer: a `SentencePiece`.

    Call arguments:
        values: int32 `(N,)`, bytes of texts.
        rows: int32 `(N,)`, the number of the text of each.

    Returns:
        Ids and the number of the text of each, int32 `(T,)`.

    Raises:
        InvalidModelError: the model is of another type, or treats spaces in a way that no known model does.

    Reference:
        Kudo and Richardson 2018, and SentencePiece 0.2: `Normalizer::Normalize` and `PopulateSentencePieceText`.
    """

    def __init__(self, tokenizer: SentencePiece) -> None:
        model = tokenizer._model
        if tokenizer.model_type not in _MODELS:
            raise unsupported(f"a SentencePiece model of the type {tokenizer.model_type}")
        self._spacing, rules = read_spacing(model), read_rules(read_charsmap(model))
        if self._spacing.treat_whitespace_as_suffix or not self._spacing.escape_whitespaces:
            raise unsupported("a SentencePiece model with spaces after words, or without a mark for spaces")
        if any("  " in text for text in rules.texts):
            raise unsupported("a SentencePiece model whose normalization makes two spaces of one character")
        pieces = read_pieces(model)
        kept = [piece for piece, _, kind in pieces if kind == USER_DEFINED]
        self._replace = Replacement(rules, kept) if rules.first or kept else None
        self._prefix = Prefix(SPACE.encode()) if self._spacing.add_dummy_prefix else None
        self._marks_are_bytes = tokenizer.lossless
        self._bytes = tokenizer._byte_ids if tokenizer.byte_fallback else None
        self._unknown = next((index for index, each in enumerate(pieces) if each[2] == UNKNOWN), 0)
        self._pieces = _MODELS[tokenizer.model_type](pieces)

    def __call__(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        codes, rows, first = self._normalized(values, rows)
        is_mark = codes == _MARK
        if self._marks_are_bytes:
            # A mark in the text is no space: a part of its own, without a piece.
            first = tf.logical_or(first, tf.logical_or(is_mark, before(flag(is_mark), 0) > 0))
        codes = tf.where(codes == _BLANK, _MARK, codes)
        places, ids = self._pieces(tf.where(is_mark, _NO_PIECE, codes) if self._marks_are_bytes else codes, first)
        return self._with_unknown(ids, tf.gather(rows, places), tf.gather(codes, places))

    def _normalized(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Code points, the number of the text of each, and where texts begin. Spaces stay spaces."""
        if self._prefix is not None:
            values, rows = self._prefix(values, rows)
        codes, places = code_points(values)
        rows = tf.gather(rows, places)
        first = before(rows, -1) != rows
        is_prefix = first if self._prefix is not None else tf.zeros_like(first)
        if self._replace is not None:
            parts = tf.logical_or(first, before(flag(is_prefix), 0) > 0)
            codes, item = self._replace(codes, parts, is_prefix)
            rows, is_prefix = tf.gather(rows, item), tf.gather(flag(is_prefix), item) > 0
        if self._spacing.remove_extra_whitespaces:
            kept = indices(_needed(codes, rows, is_prefix))
            codes, rows = tf.gather(codes, kept), tf.gather(rows, kept)
        return codes, rows, before(rows, -1) != rows

    def _with_unknown(self, ids: Tensor, rows: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Ids where characters without a piece are bytes, or together one unknown token."""
        is_unknown = ids < 0
        if self._bytes is None:
            again = tf.logical_and(before(flag(is_unknown), 0) > 0, before(rows, -1) == rows)
            kept = indices(tf.logical_not(tf.logical_and(is_unknown, again)))
            return tf.gather(tf.where(is_unknown, self._unknown, ids), kept), tf.gather(rows, kept)
        values, item, _ = utf8_of(tf.where(is_unknown, codes, ord("a")))
        spelled = gather(self._bytes, values)
        return tf.where(tf.gather(is_unknown, item), spelled, tf.gather(ids, item)), tf.gather(rows, item)


def _needed(codes: Tensor, rows: Tensor, is_prefix: Tensor) -> Tensor:
    """Where a character is no space after another, at the start of a text, or at its end, where marks go too."""
    first = before(rows, -1) != rows
    is_blank = codes == _BLANK
    at_start = tf.logical_or(first, before(flag(is_prefix), 0) > 0)
    extra = tf.logical_and(is_blank, tf.logical_or(at_start, before(flag(is_blank), 0) > 0))
    solid = flag(tf.logical_not(tf.logical_or(is_blank, codes == _MARK)))
    count = tf.cumsum(solid)
    rest = tf.gather(count, next_true(first) - 1) - count + solid
    return tf.logical_and(tf.logical_not(extra), rest > 0)
