"""Unigram models of a `tokenizer.json` in a graph: T5, XLM-R, CamemBERT, ALBERT, XLNet."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.best_path import BestPath
from keras_transformer.export.text.charsmap import Rules, read_rules, rules_of
from keras_transformer.export.text.code_points import SPACE as BETWEEN
from keras_transformer.export.text.code_points import VALID, PagedTable, kinds
from keras_transformer.export.text.replacement import ClusterReplacement, Replacement, symbol_table
from keras_transformer.export.text.steps import before, code_points, flag, indices, look_up, repeated
from keras_transformer.export.text.tokenizer_parts import parts_of, unsupported
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.utils.types import Tensor

_MARK = ord(SPACE)
_PENALTY = 10
# Scores in float32 are multiples of the inverse, so that sums of float64 are exact, and the same as those of integers.
_STEPS = 2**30
# Between words all spaces are the same.
_SINGLE_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
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
        self._normalizers = _normalizers(content.get("normalizer"))
        words = [each["type"] for each in parts_of(content.get("pre_tokenizer"))]
        if words != ["WhitespaceSplit", "Metaspace"]:
            raise unsupported(f"Unigram with the pre-tokenizers {', '.join(words) or 'None'}")
        mark = parts_of(content["pre_tokenizer"])[-1]
        if mark.get("replacement") != SPACE or mark.get("prepend_scheme") != "always" or mark.get("split") is False:
            raise unsupported("Unigram with words that do not begin with a mark")
        if content["model"].get("byte_fallback") or content["model"].get("unk_id") is None:
            raise unsupported("Unigram of a tokenizer.json with byte fallback, or without an unknown token")
        self._between = PagedTable((kinds(library().pre_tokenizers.WhitespaceSplit()) == BETWEEN).astype("int32"))
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
        starts = codes == _MARK
        places, _, ids = self._path(look_up(self._symbols, codes), starts)
        rows, word = tf.gather(rows, places), tf.gather(tf.cumsum(flag(starts)), places)
        # Unknown characters of a word that follow each other are one token.
        is_unknown = tf.logical_or(ids < 0, ids == self._unknown)
        again = tf.logical_and(before(flag(is_unknown), 0) > 0, before(word, 0) == word)
        kept = indices(tf.logical_not(tf.logical_and(is_unknown, again)))
        return tf.gather(tf.where(is_unknown, self._unknown, ids), kept), tf.gather(rows, kept)

    def _words(self, codes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The words, each with a mark before it unless it has one."""
        is_space = look_up(self._between, codes)
        begins = tf.logical_or(before(is_space, 1) > 0, before(rows, -1) != rows)
        kept = indices(is_space == 0)
        codes, rows, begins = (tf.gather(each, kept) for each in (codes, rows, begins))
        gains = flag(tf.logical_and(begins, codes != _MARK))
        item, offset = repeated(1 + gains)
        is_mark = offset < tf.gather(gains, item)
        return tf.where(is_mark, _MARK, tf.gather(codes, item)), tf.gather(rows, item)


# Normalizers that make the same of a character in any text: marks, whose order NFKD changes, are removed.
_OF_CHARACTERS: tuple[list[str], ...] = (
    [],
    ["Lowercase"],
    ["NFKD", "StripAccents"],
    ["NFKD", "StripAccents", "Lowercase"],
)


def _normalizers(normalizer: Mapping[str, Any] | None) -> list[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """The steps of a normalizer: functions of code points and the starts of texts, as `ClusterReplacement`.

    Raises:
        InvalidModelError: it has other parts.
    """
    parts = [each for each in parts_of(normalizer) if each != _SINGLE_SPACES]
    steps: list[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = []
    rest = parts
    while rest and rest[0]["type"] == "Replace" and rest[0]["pattern"].get("String"):
        steps.append(_everywhere(rules_of({rest[0]["pattern"]["String"]: rest[0]["content"]})))
        rest = rest[1:]
    last = rest[-1] if rest and rest[-1]["type"] == "Precompiled" else None
    rest = rest[:-1] if last else rest
    if [each["type"] for each in rest] not in _OF_CHARACTERS:
        raise unsupported(f"Unigram with the normalizers {', '.join(each['type'] for each in parts)}")
    if rest:
        steps.append(_everywhere(rules_of(_changes([each["type"] for each in rest]))))
    rules = read_rules(base64.b64decode(last["precompiled_charsmap"])) if last else rules_of({})
    return [*steps, ClusterReplacement(rules)] if rules.first else steps


def _everywhere(rules: Rules) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    replace = Replacement(rules)
    return lambda codes, parts: replace(codes, parts, tf.zeros_like(parts))


def _changes(names: list[str]) -> dict[str, str]:
    """The characters that some normalizers of the library change, and what they make of each."""
    normalizers = library().normalizers
    change = normalizers.Sequence([getattr(normalizers, name)() for name in names]).normalize_str
    made = {chr(code): change(chr(code)) for code in VALID}
    return {character: text for character, text in made.items() if text != character}
