"""The encoder of a tokenizer: what the parts of a `tokenizer.json` are as steps of a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.text.byte_level import ByteLevelSteps, Prefix
from keras_transformer.export.text.byte_pairs import Merges
from keras_transformer.export.text.code_points import LIMIT, PagedTable
from keras_transformer.export.text.pair_table import PairTable
from keras_transformer.export.text.steps import before, code_points, gather, look_up, repeated
from keras_transformer.export.text.wordpiece import WordPieceSteps
from keras_transformer.export.text.words import GPT2, PATTERNS, DigitSplitter, Splitter
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.byte_pair import byte_alphabet
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.text.tokenizers.wordpiece_vocabulary import MAX_CHARACTERS_PER_WORD, PREFIX
from keras_transformer.utils.types import Tensor

Encoder = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_BLANK = ord(" ")


def encoder_of(tokenizer: Any) -> Encoder:
    """The function of bytes, and the number of the text of each, to ids, and the number of the text of each.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.

    Raises:
        InvalidModelError: names the part of the tokenizer that cannot be a graph.
    """
    if tokenizer.kind == "bytes":
        return lambda values, rows: (values + tokenizer._first_byte, rows)
    if tokenizer.kind == "wordpiece":
        return _own_wordpiece(tokenizer)
    if tokenizer.kind not in ("byte_pair", "hugging_face"):
        raise _unsupported(f"a tokenizer of the kind '{tokenizer.kind}'")
    content = tokenizer._content if tokenizer.kind == "byte_pair" else tokenizer.content
    kind = content["model"].get("type", "BPE")
    added = _added(content)
    if kind == "WordPiece" and not added:
        return _wordpiece(content)
    if kind == "BPE":
        return _byte_pairs(content, added)
    if added:
        raise _unsupported(f"the added token {next(iter(added))!r}, which texts may contain")
    raise _unsupported(f"a model of the type {kind}")


def _unsupported(what: str) -> InvalidModelError:
    return InvalidModelError(f"{what} cannot be part of a tokenizer's file; WordPiece, BPE and bytes can")


def _added(content: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens that are found in texts, and their ids."""
    found = {}
    for each in content.get("added_tokens") or ():
        if not each.get("special"):
            if any(each.get(name) for name in ("single_word", "lstrip", "rstrip", "normalized")):
                raise _unsupported(f"the added token {each['content']!r}, which depends on the text around it")
            found[each["content"]] = each["id"]
    return found


def _own_wordpiece(tokenizer: Any) -> Encoder:
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
    if (normalizer or {}).get("type") != "BertNormalizer":
        raise _unsupported(f"WordPiece with the normalizer {_type(normalizer)}")
    if (words or {}).get("type") != "BertPreTokenizer":
        raise _unsupported(f"WordPiece with the pre-tokenizer {_type(words)}")
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


def _type(part: Mapping[str, Any] | None) -> str:
    return "None" if part is None else str(part.get("type"))


# Byte-pair encoding.


def _byte_pairs(content: Mapping[str, Any], added: Mapping[str, int]) -> Encoder:
    model = content["model"]
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise _unsupported(f"BPE with {name}={model[name]!r}")
    merges = Merges(_ranks(model), max(model["vocab"].values()) + 1)
    parts = _parts(content.get("pre_tokenizer"))
    if parts and parts[-1]["type"] == "ByteLevel":
        return _byte_level(content, parts, merges, added)
    if added or model.get("ignore_merges"):
        raise _unsupported("BPE with byte fallback and added tokens that texts may contain, or ignore_merges")
    return _with_fallback(content, parts, merges)


def _ranks(model: Mapping[str, Any]) -> dict[tuple[int, int], tuple[int, int]]:
    """Two ids to the rank of their merge and the id that it makes."""
    vocabulary, found = model["vocab"], {}
    for rank, merge in enumerate(model["merges"]):
        left, right = _pair(merge)
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


def _parts(part: Mapping[str, Any] | None) -> list[Any]:
    if part is None:
        return []
    nested = part.get("pretokenizers", part.get("normalizers"))
    return [part] if nested is None else [each for inner in nested for each in _parts(inner)]


def _byte_level(content: Mapping[str, Any], parts: list[Any], merges: Merges, added: Mapping[str, int]) -> Encoder:
    if _parts(content.get("normalizer")):
        raise _unsupported(f"byte-level BPE with the normalizer {_type(content['normalizer'])}")
    model, (*firsts, last) = content["model"], parts
    own = {value: model["vocab"].get(character) for character, value in byte_alphabet().items()}
    if None in own.values():
        raise _unsupported("byte-level BPE without a token for each byte")
    if last.get("add_prefix_space") and (firsts or added):
        raise _unsupported("a space that is added before every piece")
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
    )


def _splitter(part: Mapping[str, Any]) -> Any:
    if part["type"] == "Digits" and part.get("individual_digits"):
        return DigitSplitter()
    pattern = (part.get("pattern") or {}).get("Regex")
    if part["type"] == "Split" and pattern in PATTERNS and part["behavior"] == "Isolated" and not part.get("invert"):
        return Splitter(pattern)
    raise _unsupported(f"the pre-tokenizer {part['type']}{f' with the pattern {pattern}' if pattern else ''}")


def _with_fallback(content: Mapping[str, Any], parts: list[Any], merges: Merges) -> Encoder:
    """BPE of whole texts, whose characters without a token are bytes: Llama 2, Mistral, Gemma."""
    vocabulary = content["model"]["vocab"]
    tokens = [vocabulary.get(f"<0x{value:02X}>") for value in range(256)]
    if not content["model"].get("byte_fallback") or None in tokens:
        raise _unsupported("BPE that is neither of bytes nor has a token for each byte")
    prefix = _space_prefix(content, parts)
    known = np.full(LIMIT, -1, "int32")
    for token, index in vocabulary.items():
        if len(token) == 1:
            known[ord(token)] = index
    known[_BLANK] = known[ord(SPACE)]
    table, bytes_table = PagedTable(known), np.array(tokens, "int32")
    neighbors = _neighbors(content["model"])

    def encode(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, rows = (values, rows) if prefix is None else prefix(values, rows)
        codes, places = code_points(values)
        ids = look_up(table, codes)
        sizes = tf.concat([places[1:], tf.shape(values)], 0) - places
        item, offset = repeated(tf.where(ids >= 0, 1, sizes))
        spelled = gather(bytes_table, tf.gather(values, tf.gather(places, item) + offset))
        ids = tf.gather(ids, item)
        rows = tf.gather(rows, tf.gather(places, item))
        ids = tf.where(ids >= 0, ids, spelled)
        left = before(ids, 0)
        known = gather(neighbors.owners, gather(neighbors.starts, left) + ids) == left
        begins = tf.logical_or(before(rows, -1) != rows, tf.logical_not(known))
        found, where = merges(ids, begins)
        return found, tf.gather(rows, where)

    return encode


def _neighbors(model: Mapping[str, Any]) -> PairTable:
    """The pairs of characters that are neighbors in a token. No merge joins others: texts are cut between them."""
    vocabulary = model["vocab"]
    found = {}
    for token in {"".join(_pair(merge)) for merge in model["merges"]}:
        for left, right in zip(token, token[1:], strict=False):
            if left in vocabulary and right in vocabulary:
                found[vocabulary[left], vocabulary[right]] = 1
    size = max(vocabulary.values()) + 1
    return PairTable(found, size, size)


def _pair(merge: str | Sequence[str]) -> Sequence[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def _space_prefix(content: Mapping[str, Any], parts: list[Any]) -> Prefix | None:
    """What puts a space before a text, of the normalizers and pre-tokenizers that are known to leave texts whole."""
    prefix, replaces, blank = None, False, SPACE.encode()
    for part in _parts(content.get("normalizer")):
        if part["type"] == "Prepend" and part["prepend"] == SPACE and not replaces:
            prefix = Prefix(blank)
        elif part["type"] == "Replace" and part == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}:
            replaces = True
        else:
            raise _unsupported(f"BPE with byte fallback and the normalizer {part['type']}")
    for part in parts:
        if part["type"] == "Metaspace" and part.get("replacement") == SPACE and part.get("split") is False:
            replaces = True
            if part.get("prepend_scheme") != "never":
                prefix = Prefix(blank, skips=(b" ", blank))
        elif part["type"] != "Split" or part.get("pattern") != {"String": " "} or not replaces:
            raise _unsupported(f"BPE with byte fallback and the pre-tokenizer {part['type']}")
    if not replaces:
        raise _unsupported("BPE with byte fallback that does not replace spaces")
    return prefix
