"""The pieces of byte-pair encoding of SentencePiece in a graph."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.text.models.byte_pairs import Merges
from keras_transformer.export.text.models.neighbors import Neighbors
from keras_transformer.export.text.normalization.replacement import symbol_table
from keras_transformer.export.text.steps import look_up
from keras_transformer.export.text.tokenizer_parts import unsupported
from keras_transformer.text.tokenizers.sentencepiece_model import NORMAL, UNUSED, USER_DEFINED
from keras_transformer.utils.types import Tensor


class BytePairPieces:
    """The pieces that merges make: always the two neighbors that make the piece of the best score, the first of several.

    Args:
        pieces: list of text, score and type of each, as `read_pieces` returns them.

    Call arguments:
        codes: int32 `(C,)`, code points.
        first: bool `(C,)`, True at the start of each text.

    Returns:
        Where pieces end, and their ids, -1 for a character without a piece; int32 `(T,)`.

    Raises:
        InvalidModelError: the model has pieces that are never merged, or never returned.

    Reference:
        Sennrich et al. 2016, and `bpe::Model::SampleEncode` of SentencePiece 0.2.
    """

    def __init__(self, pieces: Sequence[tuple[str, float, int]]) -> None:
        for text, _, kind in pieces:
            if kind in (UNUSED, USER_DEFINED):
                raise unsupported(f"a BPE model of SentencePiece with the user-defined or unused piece {text!r}")
        known = {text: index for index, (text, _, kind) in enumerate(pieces) if kind == NORMAL}
        self._size = len(pieces)
        # Characters may be in pieces, and none themselves. Number 0 is that of all others.
        letters = sorted({each for text in known for each in text})
        numbers = {text: index + 1 for text, index in known.items()}
        numbers |= {each: self._size + 1 + at for at, each in enumerate(each for each in letters if each not in known)}
        self._letters = symbol_table({each: numbers[each] for each in letters})
        size = max(numbers.values()) + 1
        ranks = {score: rank for rank, score in enumerate(sorted({each[1] for each in pieces}, reverse=True))}
        merges: dict[tuple[int, int], tuple[int, int]] = {}
        for text, index in known.items():
            for at in range(1, len(text)):
                left, right = text[:at], text[at:]
                if left in numbers and right in numbers:
                    merges[numbers[left], numbers[right]] = (ranks[pieces[index][1]], index + 1)
        self._merges = Merges(merges, size)
        self._neighbors = Neighbors(([numbers[each] for each in text] for text in known), size)

    def __call__(self, codes: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        numbers = look_up(self._letters, codes)
        found, begins = self._merges(numbers, tf.logical_or(first, tf.logical_not(self._neighbors(numbers))))
        ends = tf.concat([begins[1:], tf.shape(codes)], 0) - 1
        return ends, tf.where(tf.logical_and(found > 0, found <= self._size), found - 1, -1)
