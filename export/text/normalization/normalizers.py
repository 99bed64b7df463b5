"""The normalizers of Unigram models in a graph."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from keras_transformer.export.text.normalization.charsmap import Rules, read_rules, rules_of
from keras_transformer.export.text.normalization.code_points import VALID, PagedTable, matches
from keras_transformer.export.text.normalization.composition import Composition
from keras_transformer.export.text.normalization.replacement import ClusterReplacement, Replacement
from keras_transformer.export.text.steps import before, flag, indices, look_up, next_true
from keras_transformer.export.text.tokenizer_parts import parts_of, unsupported
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.utils.types import Tensor

# A function of code points, int32 `(C,)`, and of where texts start, bool `(C,)`. It returns code points, and for each the
# index of the one that it stands for.
Normalizer = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_SINGLE_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
# The end of DeBERTa's.
_BLANKS = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "NFC"},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
# Normalizers that make the same of a character in any text: marks, whose order NFKD changes, are removed.
_OF_CHARACTERS: tuple[list[str], ...] = (
    [],
    ["Lowercase"],
    ["NFKD", "StripAccents"],
    ["NFKD", "StripAccents", "Lowercase"],
)


def normalizers_of(normalizer: Mapping[str, object] | None, ignores_spaces: bool) -> list[Normalizer]:
    """The steps of a normalizer of a `tokenizer.json`.

    Args:
        normalizer: its part of the file.
        ignores_spaces: bool. Whether the number of spaces between words does not matter afterwards.

    Raises:
        InvalidModelError: it has other parts.
    """
    parts = [each for each in parts_of(normalizer) if not (ignores_spaces and each == _SINGLE_SPACES)]
    steps: list[Normalizer] = []
    rest = parts
    while rest and rest[0]["type"] == "Replace" and rest[0]["pattern"].get("String"):
        steps.append(_everywhere(rules_of({rest[0]["pattern"]["String"]: rest[0]["content"]})))
        rest = rest[1:]
    last: list[Normalizer] = []
    if rest and rest[-1]["type"] == "Precompiled":
        rules = read_rules(base64.b64decode(rest[-1]["precompiled_charsmap"]))
        rest, last = rest[:-1], [ClusterReplacement(rules)] if rules.first else []
    elif rest[-len(_BLANKS) :] == _BLANKS:
        rest, last = rest[: -len(_BLANKS)], [SingleBlanks(), _composed(), StrippedEnd()]
    if [each["type"] for each in rest] not in _OF_CHARACTERS:
        raise unsupported(f"Unigram with the normalizers {', '.join(each['type'] for each in parts)}")
    if rest:
        steps.append(_everywhere(rules_of(_changes([each["type"] for each in rest]))))
    return steps + last


class SingleBlanks:
    r"""Replaces several blanks, or one that is no space, by a space: `\s{2,}|[\n\r\t]`. A `Normalizer`."""

    def __call__(self, codes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        blank = look_up(_blanks(), codes) > 0
        begins = tf.logical_or(starts, tf.logical_not(blank))
        first = tf.logical_and(blank, tf.logical_or(starts, before(flag(blank), 0) == 0))
        is_several = next_true(tf.logical_or(begins, first)) > tf.range(tf.size(codes)) + 1
        is_line = tf.reduce_any(codes[:, None] == tf.constant([[9, 10, 13]]), axis=1)
        replaced = tf.logical_and(first, tf.logical_or(is_several, is_line))
        kept = indices(tf.logical_or(first, tf.logical_not(blank)))
        return tf.gather(tf.where(replaced, ord(" "), codes), kept), kept


class StrippedEnd:
    """Removes the blanks at the end of each text. A `Normalizer`."""

    def __call__(self, codes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        blank = look_up(_blanks(), codes) > 0
        ends = next_true(tf.logical_or(starts, tf.logical_not(blank))) == next_true(starts)
        kept = indices(tf.logical_not(tf.logical_and(blank, ends)))
        return tf.gather(codes, kept), kept


@functools.cache
def _blanks() -> PagedTable:
    """1 for blanks of any kind."""
    return PagedTable(matches(r"\s").astype("int32"))


def _composed() -> Normalizer:
    compose = Composition()

    def composed(codes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        codes, item, _, _ = compose(codes, tf.range(tf.size(codes)), tf.zeros_like(codes) - 1, starts)
        return codes, item

    return composed


def _everywhere(rules: Rules) -> Normalizer:
    replace = Replacement(rules)
    return lambda codes, parts: replace(codes, parts, tf.zeros_like(parts))


def _changes(names: list[str]) -> dict[str, str]:
    """The characters that some normalizers of the library change, and what they make of each."""
    normalizers = library().normalizers
    change = normalizers.Sequence([getattr(normalizers, name)() for name in names]).normalize_str
    made = {chr(code): change(chr(code)) for code in VALID}
    return {character: text for character, text in made.items() if text != character}
