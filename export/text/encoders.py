"""The encoder of a tokenizer: what the parts of a `tokenizer.json` are as steps of a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.text.models.byte_fallback import with_fallback
from keras_transformer.export.text.models.byte_level import ByteLevelSteps, Prefix
from keras_transformer.export.text.models.byte_pairs import Merges
from keras_transformer.export.text.models.sentencepiece import SentencePieceSteps
from keras_transformer.export.text.models.unigram import UnigramSteps
from keras_transformer.export.text.models.wordpiece import WordPieceSteps
from keras_transformer.export.text.models.words import GPT2, PATTERNS, DigitSplitter, Splitter
from keras_transformer.export.text.normalization.composition import Composition
from keras_transformer.export.text.tokenizer_parts import pair_of, parts_of, type_of, unsupported
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.byte_pair import byte_alphabet
from keras_transformer.text.tokenizers.tokenizer_files import MAX_CHARACTERS_PER_WORD, PREFIX
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text import Bytes, Tokenizer, WordPiece

Encoder = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_BLANK = ord(" ")


def encoder_of(tokenizer: Tokenizer) -> Encoder:
    """The function of bytes, and the number of the text of each, to ids, and the number of the text of each.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.

    Raises:
        InvalidModelError: names the part of the tokenizer that cannot be a graph.
    """
    if tokenizer.kind not in _KINDS:
        raise unsupported(f"a tokenizer of the kind '{tokenizer.kind}'")
    return _KINDS[tokenizer.kind](tokenizer)


def _of_content(content: Mapping[str, Any], special: Collection[int] = ()) -> Encoder:
    """The encoder of the content of a `tokenizer.json`, with the ids of tokens whose names are ordinary text."""
    kind = content["model"].get("type", "BPE")
    added = _added(content)
    if kind == "WordPiece" and not added:
        return _wordpiece(content)
    if kind == "BPE":
        return _byte_pairs(content, added)
    if kind == "Unigram" and not added:
        return UnigramSteps(content, special)
    if added:
        raise unsupported(f"the added token {next(iter(added))!r}, which texts may contain")
    raise unsupported(f"a model of the type {kind}")


def _bytes(tokenizer: Bytes) -> Encoder:
    return lambda values, rows: (values + tokenizer._first_byte, rows)


def _added(content: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens that are found in texts, and their ids."""
    found = {}
    for each in content.get("added_tokens") or ():
        if not each.get("special"):
            if any(each.get(name) for name in ("single_word", "lstrip", "rstrip", "normalized")):
                raise unsupported(f"the added token {each['content']!r}, which depends on the text around it")
            found[each["content"]] = each["id"]
    return found


def _own_wordpiece(tokenizer: WordPiece) -> Encoder:
    content = {
        "model": {
            "vocab": {token: index for index, token in enumerate(tokenizer.vocabulary)},
            "unk_token": tokenizer.special_tokens["unknown"],
            "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
        },
        "normalizer": json.loads(library().normalizers.BertNormalizer(lowercase=tokenizer.lowercase).__getstate__()),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    return _wordpiece(content)


def _wordpiece(content: Mapping[str, Any]) -> Encoder:
    normalizer, words, model = content.get("normalizer"), content.get("pre_tokenizer"), content["model"]
    if normalizer is None or normalizer.get("type") != "BertNormalizer":
        raise unsupported(f"WordPiece with the normalizer {type_of(normalizer)}")
    if (words or {}).get("type") != "BertPreTokenizer":
        raise unsupported(f"WordPiece with the pre-tokenizer {type_of(words)}")
    options = {key: value for key, value in normalizer.items() if key != "type"}
    strips = options.get("strip_accents")
    strips = options.get("lowercase", True) if strips is None else strips
    make = library().normalizers.BertNormalizer
    return WordPieceSteps(
        make(**options),
        make(**options | {"strip_accents": False, "lowercase": False}) if strips else None,
        library().pre_tokenizers.BertPreTokenizer(),
        model["vocab"],
        model["vocab"][model["unk_token"]],
        model["continuing_subword_prefix"],
        model["max_input_chars_per_word"],
    )


# Byte-pair encoding.


def _byte_pairs(content: Mapping[str, Any], added: Mapping[str, int]) -> Encoder:
    model = content["model"]
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise unsupported(f"BPE with {name}={model[name]!r}")
    merges = Merges(_ranks(model), max(*model["vocab"].values(), *added.values()) + 1)
    parts = parts_of(content.get("pre_tokenizer"))
    if parts and parts[-1]["type"] == "ByteLevel":
        return _byte_level(content, parts, merges, added)
    if added or model.get("ignore_merges"):
        raise unsupported("BPE with byte fallback and added tokens that texts may contain, or ignore_merges")
    return with_fallback(content, parts, merges)


def _ranks(model: Mapping[str, Any]) -> dict[tuple[int, int], tuple[int, int]]:
    """Two ids to the rank of their merge and the id that it makes."""
    vocabulary, found = model["vocab"], {}
    for rank, merge in enumerate(model["merges"]):
        left, right = pair_of(merge)
        found[vocabulary[left], vocabulary[right]] = (rank, vocabulary[left + right])
    return found


def _not_merged(content: Mapping[str, Any]) -> dict[bytes, int]:
    """The tokens that merges alone do not make, and their ids."""
    model = {**content["model"], "ignore_merges": False}
    plain = {**content, "model": model, "normalizer": None, "pre_tokenizer": None, "added_tokens": []}
    plain |= {"post_processor": None, "decoder": None, "truncation": None, "padding": None}
    tokenizer, alphabet = library().Tokenizer.from_str(json.dumps(plain)), byte_alphabet()
    tokens = [token for token in model["vocab"] if all(character in alphabet for character in token)]
    encodings = tokenizer.encode_batch_fast(tokens, add_special_tokens=False)
    made = zip(tokens, encodings, strict=True)
    return {
        bytes(alphabet[each] for each in token): model["vocab"][token]
        for token, encoding in made
        if encoding.ids != [model["vocab"][token]]
    }


def _byte_level(content: Mapping[str, Any], parts: list[Any], merges: Merges, added: Mapping[str, int]) -> Encoder:
    normalizers = [each["type"] for each in parts_of(content.get("normalizer"))]
    if normalizers not in ([], ["NFC"]):
        raise unsupported(f"byte-level BPE with the normalizers {', '.join(normalizers)}")
    model, (*firsts, last) = content["model"], parts
    own = {value: model["vocab"].get(character) for character, value in byte_alphabet().items()}
    if None in own.values():
        raise unsupported("byte-level BPE without a token for each byte")
    if last.get("add_prefix_space") and (firsts or added or normalizers):
        raise unsupported("a space that is added before every piece")
    splitters = [_splitter(part) for part in firsts]
    if last.get("use_regex", True):
        splitters.append(Splitter(GPT2))
    return ByteLevelSteps(
        [own[value] for value in range(256)],
        splitters,
        merges,
        Prefix(b" ", skips=(b" ",)) if last.get("add_prefix_space") else None,
        {token.encode(): index for token, index in added.items()},
        _not_merged(content) if model.get("ignore_merges") else {},
        Composition() if normalizers else None,
    )


def _splitter(part: Mapping[str, Any]) -> DigitSplitter | Splitter:
    if part["type"] == "Digits" and part.get("individual_digits"):
        return DigitSplitter()
    pattern = (part.get("pattern") or {}).get("Regex")
    if part["type"] == "Split" and pattern in PATTERNS and part["behavior"] == "Isolated" and not part.get("invert"):
        return Splitter(pattern)
    raise unsupported(f"the pre-tokenizer {part['type']}{f' with the pattern {pattern}' if pattern else ''}")


# Kind of tokenizer to its encoder.
_KINDS: dict[str, Callable[[Any], Encoder]] = {
    "bytes": _bytes,
    "wordpiece": _own_wordpiece,
    "byte_pair": lambda tokenizer: _of_content(tokenizer._content),
    "sentencepiece": SentencePieceSteps,
    "hugging_face": lambda tokenizer: _of_content(tokenizer.content, tokenizer._special_ids),
}
