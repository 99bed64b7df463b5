"""The pieces of unigram models of SentencePiece in a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.best_path import BestPath
from keras_transformer.export.text.models.neighbors import Neighbors
from keras_transformer.export.text.normalization.replacement import symbol_table
from keras_transformer.export.text.steps import flag, indices, look_up, next_true
from keras_transformer.text.tokenizers.sentencepiece_model import NORMAL, SCORE_STEP, USER_DEFINED
from keras_transformer.utils.types import Tensor

# Of SentencePiece 0.2: `kUnkPenalty`, `kScoreResetThreshold` and `GetUserDefinedScore`.
_PENALTY, _FARTHEST, _BONUS = 10, 1e5, 0.1
# Sums of multiples of `SCORE_STEP` are exact below this in float32.
_EXACT = 2**24 * SCORE_STEP


class UnigramPieces:
    """The pieces of the segmentation of the highest score.

    Args:
        pieces: list of text, score and type of each, as `read_pieces` returns them.

    Call arguments:
        codes: int32 `(C,)`, code points.
        first: bool `(C,)`, True at the start of each text.

    Returns:
        Where pieces end, and their ids, -1 for a character without a piece; int32 `(T,)`.

    Reference:
        Kudo 2018, section 3.2; `Model::EncodeOptimized` of SentencePiece 0.2. Sums of scores are those of the library in
        float32. Where they are exact, texts are also cut between characters that are in no piece together, which changes
        no sum.
    """

    def __init__(self, pieces: Sequence[tuple[str, float, int]]) -> None:
        known = [(text, index) for index, (text, _, kind) in enumerate(pieces) if kind in (NORMAL, USER_DEFINED)]
        symbols = {each: number for number, each in enumerate(sorted({each for text, _ in known for each in text}), 1)}
        self._symbols = symbol_table(symbols)
        scores = np.array([_score(*each) for each in pieces], "float32")
        unknown = np.float32(min((score for _, score, kind in pieces if kind == NORMAL), default=0.0) - _PENALTY)
        spelled = [([symbols[each] for each in text], index) for text, index in known]
        self._path = BestPath(spelled, len(symbols) + 1, scores, unknown, _FARTHEST)
        self._neighbors = Neighbors((sequence for sequence, _ in spelled), len(symbols) + 1)
        every = np.append(scores[[index for _, index in known]], unknown).astype("float64")
        is_exact = bool((every / SCORE_STEP == np.round(every / SCORE_STEP)).all())
        # The number of characters of which no path has a sum that rounds.
        self._exact_size = int(_EXACT / np.abs(every).max()) if is_exact else 0

    def __call__(self, codes: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        symbols = look_up(self._symbols, codes)
        places, _, ids = self._path(symbols, self._cut(symbols, first))
        return places, ids

    def _cut(self, symbols: Tensor, first: Tensor) -> Tensor:
        """Where texts are cut: between characters that are in no piece together, in texts whose sums are exact."""
        if not self._exact_size:
            return first
        sizes = next_true(first) - tf.range(tf.size(symbols))
        size = tf.gather(tf.gather(sizes, indices(first)), tf.cumsum(flag(first)) - 1)
        return tf.logical_or(first, tf.logical_and(tf.logical_not(self._neighbors(symbols)), size <= self._exact_size))


def _score(text: str, score: float, kind: int) -> float:
    return _BONUS * (len(text.encode()) - 1) if kind == USER_DEFINED else score
