"""The tokenizer of a GGUF file, as the files of a folder of transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.checkpoints.gguf.tokenizer import pre_tokenizers
from keras_transformer.text import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.hugging_face.sentencepiece import BUILDERS
from keras_transformer.text.tokenizers.sentencepiece_model import CONTROL, NORMAL, SPACE, UNUSED, USER_DEFINED
from keras_transformer.utils.types import JsonObject

_MODEL, _TOKENS, _TYPES = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_PRE, _MERGES, _SCORES = "tokenizer.ggml.pre", "tokenizer.ggml.merges", "tokenizer.ggml.scores"
_TEMPLATE = "tokenizer.chat_template"
_ROLES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "mask_token": "mask",
    "sep_token": "seperator",  # As it is written there.
}
# Fillers up to the number of rows of the embedding, and the sentinels of T5, which the model does not list.
_FILLER, _SENTINEL = re.compile(r"\[PAD\d+\]"), re.compile(r"<extra_id_\d+>")
_NUM_SENTINELS = 100
# Pre-tokenizers of files from before "tokenizer.ggml.pre".
_DEFAULT_PRE = {"gpt2": "gpt-2", "qwen2": "qwen2"}


def token_settings(metadata: Metadata) -> JsonObject:
    """Settings of the model that are ids of tokens: those that begin, end and pad a text."""
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    keys = {name: f"tokenizer.ggml.{kind}_token_id" for name, kind in names.items()}
    found: JsonObject = {name: metadata.integer(key) for name, key in keys.items() if key in metadata}
    turn = metadata.integer("tokenizer.ggml.eot_token_id", found.get("eos_token_id", -1))
    if "eos_token_id" in found and turn != found["eos_token_id"]:
        found["eos_token_id"] = [found["eos_token_id"], turn]
    return found


def tokenizer_files(metadata: Metadata) -> dict[str, bytes]:
    """The files by name; none for a file without a tokenizer.

    Raises:
        InvalidTokenizerError: the tokenizer is of an unknown kind, or its lists do not fit together.
    """
    if metadata.text(_MODEL, "none") in ("none", "no_vocab") or _TOKENS not in metadata:
        return {}
    kind, tokens = metadata.text(_MODEL), metadata.texts(_TOKENS)
    if kind not in _WRITERS:
        raise InvalidTokenizerError(
            f"{metadata.source}: no tokenizer {kind[:40]!r}. Known tokenizers: {', '.join(_WRITERS)}"
        )
    types = metadata.numbers(_TYPES, np.full(len(tokens), NORMAL))
    if len(types) != len(tokens):
        raise InvalidTokenizerError(f"{metadata.source} has {len(tokens)} tokens and {len(types)} types of tokens.")
    files, settings = _WRITERS[kind](metadata, tokens, types.tolist())
    settings |= _roles(metadata, tokens)
    files["tokenizer_config.json"] = _json({**settings, "model_type": metadata.architecture})
    if _TEMPLATE in metadata:
        files["chat_template.jinja"] = metadata.text(_TEMPLATE).encode()
    return files


def _roles(metadata: Metadata, tokens: list[str]) -> dict[str, str]:
    """The tokens with a role, by transformers' name of it."""
    found = {}
    for role, name in _ROLES.items():
        key = f"tokenizer.ggml.{name}_token_id"
        index = metadata.integer(key, -1)
        if index >= len(tokens) or (index < 0 and key in metadata):
            raise InvalidTokenizerError(f"{metadata.source}: {key!r} is {index}, with {len(tokens)} tokens.")
        if index >= 0:
            found[role] = tokens[index]
    return found


def _ends(metadata: Metadata, start: bool, end: bool = False) -> dict[str, bool]:
    """Whether texts begin and end with tokens, if the file does not say otherwise."""
    return {
        "add_bos_token": metadata.flag("tokenizer.ggml.add_bos_token", start),
        "add_eos_token": metadata.flag("tokenizer.ggml.add_eos_token", end),
    }


_Files = tuple[dict[str, bytes], dict[str, Any]]


def _byte_pair(metadata: Metadata, tokens: list[str], types: list[int]) -> _Files:
    """Byte-level BPE."""
    name = metadata.text(_PRE, _DEFAULT_PRE.get(metadata.architecture, "default"))
    kept = _without_fillers(tokens, types)
    merges = [each.split(" ") for each in metadata.texts(_MERGES)]
    bad = next((each for each in merges if len(each) != 2), None)
    if bad is not None:
        raise InvalidTokenizerError(f"{metadata.source}: a merge is {' '.join(bad)[:80]!r}, not two tokens.")
    model = {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens[:kept])}, "merges": merges}
    content = {
        "version": "1.0",
        "added_tokens": [_added(i, tokens[i], types[i]) for i in range(kept) if types[i] in (CONTROL, USER_DEFINED)],
        "normalizer": pre_tokenizers.normalizer(name),
        "pre_tokenizer": pre_tokenizers.pre_tokenizer(name, metadata.source),
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {**model, "ignore_merges": pre_tokenizers.takes_whole_words(name)},
    }
    # A class without special tokens of its own.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **_ends(metadata, pre_tokenizers.adds_start(name))}
    return {"tokenizer.json": _json(content)}, settings


def _sentencepiece(metadata: Metadata, tokens: list[str], types: list[int]) -> _Files:
    """SentencePiece's BPE, of Llama and Gemma."""
    kept = _without_fillers(tokens, types)
    model = _piece_model(metadata, tokens[:kept], types[:kept], kind=2)
    prefix = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    found = BUILDERS["llama"](model, {"add_prefix_space": prefix})
    # As in SentencePiece, a space in front of a text is kept beside the one that is added.
    normalizers = library().normalizers
    marks = [normalizers.Prepend(SPACE)] if prefix else []
    found.normalizer = normalizers.Sequence([*marks, normalizers.Replace(" ", SPACE)])
    found.pre_tokenizer = None
    return {"tokenizer.json": found.to_str().encode()}, _ends(metadata, True)


def _unigram(metadata: Metadata, tokens: list[str], types: list[int]) -> _Files:
    """SentencePiece's unigram model, of T5: its sentinels are added to the pieces."""
    kept = _without_fillers(tokens, types)
    listed = kept
    while kept and _SENTINEL.fullmatch(tokens[kept - 1]):
        kept -= 1
    sentinels = listed - kept or min(_NUM_SENTINELS, len(tokens) - kept)
    return {"spiece.model": _piece_model(metadata, tokens[:kept], types[:kept], kind=1)}, {"extra_ids": sentinels}


def _wordpiece(metadata: Metadata, tokens: list[str], types: list[int]) -> _Files:
    """WordPiece, whose words are marked in the file, and not their continuations."""
    words = [_word(token, kind) for token, kind in zip(tokens, types, strict=True)]
    lowercase = metadata.flag("tokenizer.ggml.normalizer.lowercase", True)
    settings = {
        "do_lower_case": lowercase,
        "strip_accents": metadata.flag("tokenizer.ggml.normalizer.strip_accents", lowercase),
    }
    return {"vocab.txt": "".join(f"{word}\n" for word in words).encode()}, settings


_WRITERS: dict[str, Callable[[Metadata, list[str], list[int]], _Files]] = {
    "gpt2": _byte_pair,
    "llama": _sentencepiece,
    "t5": _unigram,
    "bert": _wordpiece,
}


def _word(token: str, kind: int) -> str:
    if kind == CONTROL:
        return token
    return token.removeprefix(SPACE) if token.startswith(SPACE) else f"##{token}"


def _without_fillers(tokens: list[str], types: list[int]) -> int:
    """The number of tokens without the fillers at the end."""
    kept = len(tokens)
    while kept and types[kept - 1] == UNUSED and _FILLER.fullmatch(tokens[kept - 1]):
        kept -= 1
    return kept


def _piece_model(metadata: Metadata, tokens: list[str], types: list[int], kind: int) -> bytes:
    """A SentencePiece model of a kind: 1 for unigram, 2 for BPE."""
    from sentencepiece import sentencepiece_model_pb2

    scores = metadata.numbers(_SCORES)[: len(tokens)]
    if len(scores) != len(tokens):
        raise InvalidTokenizerError(f"{metadata.source} has {len(tokens)} tokens and {len(scores)} scores.")
    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto()
    model.trainer_spec.model_type = kind
    charsmap = metadata.values.get("tokenizer.ggml.precompiled_charsmap")
    if isinstance(charsmap, np.ndarray):
        model.normalizer_spec.precompiled_charsmap = charsmap.tobytes()
    for token, score, type in zip(tokens, scores.tolist(), types, strict=True):
        model.pieces.add(piece=token, score=score, type=type)
    return model.SerializeToString()


def _added(index: int, token: str, kind: int) -> JsonObject:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, "special": kind == CONTROL, **flags}


def _json(values: JsonObject) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode()
