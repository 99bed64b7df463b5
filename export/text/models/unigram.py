"""Unigram models of a `tokenizer.json` in a graph: T5, XLM-R, CamemBERT, ALBERT, XLNet, DeBERTa."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.models.best_path import BestPath
from keras_transformer.export.text.models.metaspace_words import MARK, SplitWords, words_of
from keras_transformer.export.text.normalization.normalizers import normalizers_of
from keras_transformer.export.text.normalization.replacement import symbol_table
from keras_transformer.export.text.steps import before, code_points, flag, indices, look_up
from keras_transformer.export.text.tokenizer_parts import unsupported
from keras_transformer.utils.types import Tensor

_PENALTY = 10
# Scores in float32 are multiples of the inverse, so that sums of float64 are exact, and the same as those of integers.
_STEPS = 2**30
# The library reads scores of a JSON file with an error of one unit in the last place.
_LAST_PLACE = 2.0**-52


class UnigramSteps:
    """Ids of texts by a Unigram model of the `tokenizers` library.

    Args:
        content: the content of a `tokenizer.json`.
        special: ids of tokens whose names are ordinary text.

    Call arguments:
        values: int32 `(N,)`, bytes of texts.
        rows: int32 `(N,)`, the number of the text of each.

    Returns:
        Ids and the number of the text of each, int32 `(T,)`.

    Raises:
        InvalidModelError: it has another normalizer or pre-tokenizer, or scores that float32 does not have.

    Reference:
        `Unigram::encode_optimized` of tokenizers 0.23, whose sums are float64. Here they are exact, of scores in float32:
        some scores of the library are away from these by one unit in the last place of float64, so that its sums of several
        such pieces in another order may differ by as much.
    """

    def __init__(self, content: Mapping[str, Any], special: Collection[int] = ()) -> None:
        self._words = words_of(content.get("pre_tokenizer"))
        self._normalizers = normalizers_of(content.get("normalizer"), isinstance(self._words, SplitWords))
        if content["model"].get("byte_fallback") or content["model"].get("unk_id") is None:
            raise unsupported("Unigram of a tokenizer.json with byte fallback, or without an unknown token")
        self._unknown = content["model"]["unk_id"]
        self._best_path(content["model"]["vocab"], set(special) - {self._unknown})

    def _best_path(self, pieces: list[tuple[str, float]], special: set[int]) -> None:
        symbols = {each: number for number, each in enumerate(sorted({each for text, _ in pieces for each in text}), 1)}
        self._symbols = symbol_table(symbols)
        given = np.array([score for _, score in pieces])
        nominal = given.astype("float32").astype("float64")
        scores = (nominal * _STEPS).astype("int64")
        if (scores != nominal * _STEPS).any() or (np.abs(given - nominal) > _LAST_PLACE * np.abs(given)).any():
            raise unsupported("Unigram with scores that are not those of a trained model in float32")
        known = [(text, index) for index, (text, _) in enumerate(pieces) if index not in special]
        spelled = [([symbols[each] for each in text], index) for text, index in known]
        unknown = scores.min() - _PENALTY * _STEPS
        self._path = BestPath(spelled, len(symbols) + 1, scores, unknown)

    def __call__(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        codes, places = code_points(values)
        rows = tf.gather(rows, places)
        for normalize in self._normalizers:
            codes, item = normalize(codes, before(rows, -1) != rows)
            rows = tf.gather(rows, item)
        codes, rows = self._words(codes, rows)
        starts = codes == MARK
        places, _, ids = self._path(look_up(self._symbols, codes), starts)
        rows, word = tf.gather(rows, places), tf.gather(tf.cumsum(flag(starts)), places)
        # Unknown characters of a word that follow each other are one token.
        is_unknown = tf.logical_or(ids < 0, ids == self._unknown)
        again = tf.logical_and(before(flag(is_unknown), 0) > 0, before(word, 0) == word)
        kept = indices(tf.logical_not(tf.logical_and(is_unknown, again)))
        return tf.gather(tf.where(is_unknown, self._unknown, ids), kept), tf.gather(rows, kept)
