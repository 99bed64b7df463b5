"""The few things of a SentencePiece model file that the library does not say or set.

The file is a protocol buffer (sentencepiece_model.proto): field 1 holds the pieces (their score is field 2, a float32),
field 2 the trainer's options (the kind of model is field 3).
"""

import struct

from keras_transformer.text.errors import InvalidTokenizerError

KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
# Sums of so many scores are exact in float32 until they pass 2 ** 16.
SCORE_STEP = 1 / 256


def read_model_type(model):
    """ "unigram", "bpe", "word" or "char": the kind of a model, given its bytes."""
    kind = 1
    for _, start, stop in _fields(model, 0, len(model), wanted=2):
        for value, _, _ in _fields(model, start, stop, wanted=3):
            kind = value
    return KINDS[kind]


def with_exact_scores(model):
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


def _fields(data, at, stop, wanted):
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


def _varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data):
            raise InvalidTokenizerError("Not a SentencePiece model: it is cut short.")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
