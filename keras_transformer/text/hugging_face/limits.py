"""Limits of the pipeline of a `tokenizer.json`, checked before the `tokenizers` library reads it.

The library applies whatever a file says: parts that each double a text, expressions that take exponential time, and maps
whose offsets end its process.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_transformer.text.charsmap import check_charsmap
from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.regular_expressions import fewest_characters

# How much longer a text may become: compatibility forms have up to 18 characters, prefixes and bytes double short words.
_MAX_GROWTH = 128
_MAX_PARTS, _MAX_DEPTH, _MAX_TEXT, _MAX_TEMPLATE = 64, 8, 1024, 64
_MAX_CHARACTERS_PER_WORD = 1000


def _same(part: Mapping[str, object]) -> float:
    return 1


def _replace(part: Mapping[str, object]) -> float:
    pattern, content = part.get("pattern"), part.get("content")
    pattern = pattern if isinstance(pattern, dict) else {"String": pattern}
    text = pattern.get("String", pattern.get("Regex"))
    if not isinstance(text, str) or not isinstance(content, str):
        raise InvalidTokenizerError(f"Not a tokenizer.json: an invalid Replace: {str(part)[:80]}")
    width = fewest_characters(text) if "Regex" in pattern else len(text)
    # A match of nothing is followed by the character after it.
    return max(1.0, len(content) / width if width else len(content) + 1)


def _precompiled(part: Mapping[str, Any]) -> float:
    found = part.get("precompiled_charsmap")
    if not found:
        return 1
    try:
        return check_charsmap(base64.b64decode(found, validate=True))
    except (binascii.Error, TypeError, ValueError) as error:
        if isinstance(error, InvalidTokenizerError):
            raise
        raise InvalidTokenizerError(f"The precompiled character map is invalid: {error}.") from None


def _split(part: Mapping[str, object]) -> float:
    pattern = part.get("pattern")
    if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
        fewest_characters(pattern["Regex"])
    return 1


def _byte_level(part: Mapping[str, object]) -> float:
    return 2  # Each byte becomes a character, of up to two bytes.


def _prefixed(part: Mapping[str, object]) -> float:
    return 2  # A word of one character gets another one.


_Growths = Mapping[str, Callable[[Mapping[str, Any]], float]]
# By the key of a section and of its lists: how much longer each kind of part makes a text.
_NORMALIZERS: _Growths = {
    **dict.fromkeys(
        ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt", "BertNormalizer"), _same
    ),
    "Prepend": _prefixed,
    "Replace": _replace,
    "Precompiled": _precompiled,
    "ByteLevel": _byte_level,
}
_PRE_TOKENIZERS: _Growths = {
    **dict.fromkeys(("BertPreTokenizer", "CharDelimiterSplit", "Digits", "Punctuation", "UnicodeScripts"), _same),
    **dict.fromkeys(("Whitespace", "WhitespaceSplit", "FixedLength"), _same),
    "ByteLevel": _byte_level,
    "Metaspace": _prefixed,
    "Split": _split,
}
_DECODERS: _Growths = {
    **dict.fromkeys(("ByteLevel", "ByteFallback", "Fuse", "Strip", "Metaspace", "BPEDecoder", "CTC"), _same),
    "WordPiece": _prefixed,
    "Replace": _replace,
}
_SECTIONS = (
    ("normalizer", "normalizers", _NORMALIZERS),
    ("pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS),
    ("decoder", "decoders", _DECODERS),
)
_PROCESSORS = frozenset(("BertProcessing", "RobertaProcessing", "ByteLevel", "TemplateProcessing"))


def check_limits(content: Mapping[str, Any]) -> None:
    """Verifies that a `tokenizer.json` cannot take time or memory out of proportion to a text.

    Args:
        content: dict. The parsed file, with a model.

    Raises:
        InvalidTokenizerError: a part is of an unknown kind, its texts are too long, its expression or map is unsafe, or all
            parts together may make a text more than 128 times longer.
    """
    growth: dict[str, float] = {}
    for name, inner, growths in _SECTIONS:
        factor = 1.0
        for part in _parts(content.get(name), name, inner):
            kind = part.get("type")
            if not isinstance(kind, str) or kind not in growths:
                raise InvalidTokenizerError(f"The {name} has a part of the unknown type {kind!r:.80}.")
            _check_texts(part, name)
            factor *= growths[kind](part)
        growth[name] = factor
    for names in (("normalizer", "pre_tokenizer"), ("decoder",)):
        total = math.prod(growth[name] for name in names)
        if total > _MAX_GROWTH:
            raise InvalidTokenizerError(
                f"The {' and '.join(names)} may make a text {total:.3g} times longer; the most is {_MAX_GROWTH}."
            )
    _check_processors(content.get("post_processor"))
    _check_model(content["model"])


def _parts(value: object, name: str, inner: str) -> Iterator[Mapping[str, Any]]:
    """Yields the parts of nested sequences."""
    pending, count = [(value, 0)] if value is not None else [], 0
    while pending:
        part, depth = pending.pop()
        count += 1
        if not isinstance(part, dict) or depth > _MAX_DEPTH or count > _MAX_PARTS:
            raise InvalidTokenizerError(f"The {name} has more than {_MAX_PARTS} parts, is too deep, or is no object.")
        if part.get("type") != "Sequence":
            yield part
            continue
        nested = part.get(inner)
        if not isinstance(nested, list):
            raise InvalidTokenizerError(f"The {name} has a sequence without {inner!r}.")
        pending += [(each, depth + 1) for each in reversed(nested[: _MAX_PARTS + 1])]


def _check_texts(part: Mapping[str, object], name: str) -> None:
    for key, value in part.items():
        values = value.values() if isinstance(value, dict) else [value]
        for each in values:
            is_map = key == "precompiled_charsmap" or isinstance(value, dict)
            if isinstance(each, str) and len(each) > _MAX_TEXT and not is_map:
                raise InvalidTokenizerError(
                    f"The {name}: {key!r} of {part.get('type')} has {len(each)} characters; the most are {_MAX_TEXT}."
                )


def _check_processors(value: object) -> None:
    for part in _parts(value, "post_processor", "processors"):
        if part.get("type") not in tuple(_PROCESSORS):
            raise InvalidTokenizerError(f"The post_processor has a part of the unknown type {part.get('type')!r:.80}.")
        for name in ("single", "pair"):
            _check_template(part.get(name), name)
        special = part.get("special_tokens")
        for token in special.values() if isinstance(special, dict) else ():
            if not isinstance(token, dict) or not isinstance(token.get("ids"), list):
                raise InvalidTokenizerError(f"The post_processor has an invalid special token: {str(token)[:80]}")
            if len(token["ids"]) > _MAX_TEMPLATE:
                raise InvalidTokenizerError(f"The post_processor has {len(token['ids'])} ids for one special token.")


def _check_template(template: object, name: str) -> None:
    """Refuses templates that contain a text more than once."""
    if not isinstance(template, list):
        return
    texts = [each["Sequence"].get("id") for each in template if _is_text(each)]
    if len(template) > _MAX_TEMPLATE or len(set(map(str, texts))) < len(texts):
        raise InvalidTokenizerError(f"The template {name!r} has {len(template)} parts, or contains a text twice.")


def _is_text(piece: object) -> bool:
    return isinstance(piece, dict) and isinstance(piece.get("Sequence"), dict)


def _check_model(model: Mapping[str, Any]) -> None:
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if isinstance(model.get(key), str) and len(model[key]) > _MAX_TEXT:
            raise InvalidTokenizerError(
                f"The model: {key!r} has {len(model[key])} characters; the most are {_MAX_TEXT}."
            )
    longest = model.get("max_input_chars_per_word", 1)
    if isinstance(longest, (int, float)) and longest > _MAX_CHARACTERS_PER_WORD:
        # The time is quadratic in it.
        raise InvalidTokenizerError(
            f"The model: 'max_input_chars_per_word' is {longest:.6g}; the most is {_MAX_CHARACTERS_PER_WORD}."
        )
