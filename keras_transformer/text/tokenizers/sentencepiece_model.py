"""The few things of a SentencePiece model file that the library does not say or set.

The file is a protocol buffer (sentencepiece_model.proto): field 1 holds the pieces (their score is field 2, a float32),
field 2 the trainer's options (the kind of model is field 3), field 3 those of the normalizer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError

# Stands for a space in pieces.
SPACE = "\u2581"
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Kinds of pieces: tokens that no text spells, and such as always stand for themselves.
CONTROL, USER_DEFINED = 3, 4
# Sums of so many scores are exact in float32 until they pass 2 ** 16.
SCORE_STEP = 1 / 256


def read_model_type(model: bytes) -> str:
    """ "unigram", "bpe", "word" or "char": the kind of a model, given its bytes."""
    kind = 1
    for _, start, stop in _fields(model, 0, len(model), wanted=2):
        for value, _, _ in _fields(model, start, stop, wanted=3):
            kind = value
    return KINDS[kind]


def read_pieces(model: bytes) -> list[tuple[str, float, int]]:
    """The pieces in the order of their ids, each as text, score and kind (1: normal, 2: unknown, 6: byte).

    Raises:
        InvalidTokenizerError: the bytes are no SentencePiece model, or hold no piece.
    """
    pieces = []
    for _, start, stop in _fields(model, 0, len(model), wanted=1):
        text, score, kind = None, 0.0, 1
        for _, at, end in _fields(model, start, stop, wanted=1):
            text = _text(model[at:end])
        for _, at, end in _fields(model, start, stop, wanted=2):
            if end - at != 4:
                raise InvalidTokenizerError("Not a SentencePiece model: it is damaged.")
            score = struct.unpack_from("<f", model, at)[0]
        for value, _, _ in _fields(model, start, stop, wanted=3):
            kind = value
        if text is None:
            raise InvalidTokenizerError("Not a SentencePiece model: a piece has no text.")
        pieces.append((text, score, kind))
    if not pieces:
        raise InvalidTokenizerError("Not a SentencePiece model: it holds no piece.")
    return pieces


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidTokenizerError("Not a SentencePiece model: a piece is not UTF-8.") from None


def read_charsmap(model: bytes) -> bytes:
    """The table of the model's normalizer as bytes; empty when it normalizes nothing."""
    charsmap = b""
    for _, start, stop in _fields(model, 0, len(model), wanted=3):
        for _, at, end in _fields(model, start, stop, wanted=2):
            charsmap = model[at:end]
    return charsmap


def with_exact_scores(model: bytes) -> bytes:
    """Rounds the scores of a unigram model so that two implementations cannot disagree about it.

    Two ways to split a text that use the same pieces in another order have the same score ("1" "11" and "11" "1"), and
    float32 sums decide between them by their rounding. Sums of multiples of 1/256 are exact up to some nine thousand tokens,
    so that the order of the search decides.

    Args:
        model: bytes.

    Returns:
        bytes of the model with every score a multiple of `SCORE_STEP`.
    """
    changed = bytearray(model)
    for _, start, stop in _fields(model, 0, len(model), wanted=1):
        for _, at, _ in _fields(model, start, stop, wanted=2):
            score = struct.unpack_from("<f", model, at)[0]
            struct.pack_into("<f", changed, at, round(score / SCORE_STEP) * SCORE_STEP)
    return bytes(changed)


def _fields(data: bytes, at: int, stop: int, wanted: int) -> Iterator[tuple[Any, int, int]]:
    """Yields value (of a varint, else None), start and end of each field with the number `wanted`."""
    while at < stop:
        key, at = _varint(data, at)
        kind, value = key & 7, None
        if kind == 0:
            start = at
            value, at = _varint(data, at)
        elif kind == 2:
            length, start = _varint(data, at)
            at = start + length
        elif kind in (1, 5):
            start, at = at, at + (8 if kind == 1 else 4)
        else:
            raise InvalidTokenizerError("Not a SentencePiece model: it is damaged.")
        if at > stop:
            raise InvalidTokenizerError("Not a SentencePiece model: it is cut short.")
        if key >> 3 == wanted:
            yield value, start, at


def _varint(data: bytes, at: int):
    value = shift = 0
    while True:
        if at >= len(data):
            raise InvalidTokenizerError("Not a SentencePiece model: it is cut short.")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
