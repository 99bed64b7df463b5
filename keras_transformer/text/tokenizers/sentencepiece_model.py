"""Fields of SentencePiece model files that the `sentencepiece` library neither reads nor writes.

The file is a protocol buffer (sentencepiece_model.proto). Field 1 contains the pieces (field 1: text, field 2: score, a
float32, field 3: type), field 2 the `TrainerSpec` (field 3: model type), field 3 the `NormalizerSpec`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from keras_transformer.text.charsmap import check_charsmap
from keras_transformer.text.errors import InvalidTokenizerError

# The meta symbol for a space in pieces.
SPACE = "\u2581"
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Types of pieces: control pieces do not occur in text, and user-defined ones are never split.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_MAX_PIECE = 1000
# Sums of multiples of this step are exact in float32 up to 2 ** 16.
SCORE_STEP = 1 / 256


def read_model_type(model: bytes) -> str:
    """Returns the type of a model, given as bytes: "unigram", "bpe", "word" or "char"."""
    kind = 1
    for _, start, stop in _fields(model, 0, len(model), wanted=2):
        for value, _, _ in _fields(model, start, stop, wanted=3):
            kind = value
    if kind not in KINDS:
        raise InvalidTokenizerError(f"Not a SentencePiece model: unknown model type {kind}.")
    return KINDS[kind]


def read_pieces(model: bytes) -> list[tuple[str, float, int]]:
    """Reads the pieces in the order of their ids, each as text, score and type (1: normal, 2: unknown, 6: byte).

    Raises:
        InvalidTokenizerError: the bytes are not a SentencePiece model, or the model has no pieces.
    """
    pieces: list[tuple[str, float, int]] = []
    for _, start, stop in _fields(model, 0, len(model), wanted=1):
        text, score, kind = None, 0.0, 1
        for _, at, end in _fields(model, start, stop, wanted=1):
            text = _text(model[at:end])
        for _, at, end in _fields(model, start, stop, wanted=2):
            if end - at != 4:
                raise InvalidTokenizerError("Not a SentencePiece model: invalid protocol buffer.")
            score = struct.unpack_from("<f", model, at)[0]
        for value, _, _ in _fields(model, start, stop, wanted=3):
            kind = value
        if not text or len(text) > _MAX_PIECE:
            raise InvalidTokenizerError(f"Not a SentencePiece model: a piece is empty, or longer than {_MAX_PIECE}.")
        pieces.append((text, score, kind))
    if not pieces:
        raise InvalidTokenizerError("Not a SentencePiece model: no pieces.")
    return pieces


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidTokenizerError("Not a SentencePiece model: a piece is not UTF-8.") from None


def read_charsmap(model: bytes) -> bytes:
    """Reads the precompiled character map of the normalizer; empty if the model does not normalize.

    Raises:
        InvalidTokenizerError: an offset of the map is outside of it.
    """
    charsmap = b""
    for _, start, stop in _fields(model, 0, len(model), wanted=3):
        for _, at, end in _fields(model, start, stop, wanted=2):
            charsmap = model[at:end]
    if charsmap:
        check_charsmap(charsmap)
    return charsmap


class Spacing(NamedTuple):
    """What a model does with spaces: the options of its `NormalizerSpec` and `TrainerSpec`, named as there."""

    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    treat_whitespace_as_suffix: bool


def read_spacing(model: bytes) -> Spacing:
    """Reads what a model does with spaces."""
    # The field of the specification, the field in it, and the default.
    places = ((3, 3, True), (3, 4, True), (3, 5, True), (2, 24, False))
    found = []
    for outer, inner, default in places:
        for _, start, stop in _fields(model, 0, len(model), wanted=outer):
            for value, _, _ in _fields(model, start, stop, wanted=inner):
                default = bool(value)
        found.append(default)
    return Spacing(*found)


def with_exact_scores(model: bytes) -> bytes:
    """Rounds the scores of a unigram model, so that different implementations return the same segmentation.

    Two segmentations with the same pieces in a different order have the same score ("1" "11" and "11" "1"). With rounded
    float32 sums, the rounding errors select one of them. Sums of multiples of 1/256 are exact up to about nine thousand
    tokens, so the order of the search selects one.

    Args:
        model: bytes.

    Returns:
        bytes of the model, with all scores multiples of `SCORE_STEP`.
    """
    changed = bytearray(model)
    for _, start, stop in _fields(model, 0, len(model), wanted=1):
        for _, at, _ in _fields(model, start, stop, wanted=2):
            score = struct.unpack_from("<f", model, at)[0]
            struct.pack_into("<f", changed, at, round(score / SCORE_STEP) * SCORE_STEP)
    return bytes(changed)


def _fields(data: bytes, at: int, stop: int, wanted: int) -> Iterator[tuple[int, int, int]]:
    """Yields value (0 unless it is a varint), start and end of each field with the number `wanted`."""
    while at < stop:
        key, at = _varint(data, at)
        kind, value = key & 7, 0
        if kind == 0:
            start = at
            value, at = _varint(data, at)
        elif kind == 2:
            length, start = _varint(data, at)
            at = start + length
        elif kind in (1, 5):
            start, at = at, at + (8 if kind == 1 else 4)
        else:
            raise InvalidTokenizerError("Not a SentencePiece model: invalid protocol buffer.")
        if at > stop:
            raise InvalidTokenizerError("Not a SentencePiece model: truncated file.")
        if key >> 3 == wanted:
            yield value, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise InvalidTokenizerError("Not a SentencePiece model: truncated file.")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
