"""The tokenizer of a model as metadata of a GGUF file: the inverse of `tokenizer_files`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

import keras

from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.gguf.tokenizer import pre_tokenizers
from keras_transformer.text import HuggingFaceTokenizer, InvalidTokenizerError
from keras_transformer.text.tokenizers.sentencepiece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)
from keras_transformer.utils.types import JsonObject

_ROLES = {
    "start": "bos",
    "end": "eos",
    "unknown": "unknown",
    "pad": "padding",
    "separator": "seperator",  # As it is written there.
    "classification": "cls",
    "mask": "mask",
}
_BYTES = re.compile(r"<0x[0-9A-F]{2}>")
# The score of pieces that no merge makes.
_LOWEST = -1e9


def tokenizer_metadata(model: keras.Model, checkpoint: Checkpoint) -> JsonObject:
    """The entries by key; none for a model without a tokenizer.

    Args:
        model: `keras.Model`, whose attribute `tokenizer` is written.
        checkpoint: its `Checkpoint`, which has the chat template.

    Raises:
        InvalidTokenizerError: GGUF files cannot describe the tokenizer.
    """
    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return {}
    tokens = _Tokens(tokenizer, checkpoint.config.integer("vocab_size"))
    kind = tokens.content["model"].get("type", "BPE")
    if kind == "BPE" and not tokens.is_of_bytes:
        kind = "SentencePiece"
    if kind not in _WRITERS:
        raise InvalidTokenizerError(f"GGUF files have no tokenizers of the kind {kind}.")
    found = _WRITERS[kind](tokens, checkpoint.config.source)
    lists = {"tokens": tokens.texts, "token_type": tokens.types}
    found |= {key: value for key, value in lists.items() if key not in found} | _roles(tokenizer)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in found.items()}
    template = chat_template(checkpoint)
    return metadata if template is None else metadata | {"tokenizer.chat_template": template}


def chat_template(checkpoint: Checkpoint) -> str | None:
    """The chat template of a checkpoint, or None."""
    if "chat_template.jinja" in checkpoint.files:
        return checkpoint.files["chat_template.jinja"].decode()
    found = json.loads(checkpoint.files.get("tokenizer_config.json", b"{}")).get("chat_template")
    return found if isinstance(found, str) else None


class _Tokens:
    """All tokens of a tokenizer in the order of their ids, and fillers up to the number of rows of the embedding.

    Args:
        tokenizer: `HuggingFaceTokenizer`.
        num_rows: of the embedding.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, num_rows: int) -> None:
        self.content = tokenizer.content
        added = {each["id"]: each for each in self.content.get("added_tokens", [])}
        self.texts: list[str] = []
        self.types: list[int] = []
        for index in range(max(num_rows, tokenizer.vocabulary_size)):
            is_token = index < tokenizer.vocabulary_size
            text = tokenizer.id_to_token(index) if is_token else ""
            self.texts.append(text or f"[PAD{index}]")
            self.types.append(_type_of(text, added.get(index), self.content) if text else UNUSED)

    @property
    def is_of_bytes(self) -> bool:
        """Whether it is a byte-level BPE."""
        return (self.content.get("decoder") or {}).get("type") == "ByteLevel"

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The merges of BPE."""
        pairs = (each.split(" ") if isinstance(each, str) else each for each in self.content["model"]["merges"])
        return [(one, two) for one, two in pairs]


def _type_of(text: str, added: JsonObject | None, content: JsonObject) -> int:
    model = content["model"]
    if text == model.get("unk_token") or (
        model.get("unk_id") is not None and text == model["vocab"][model["unk_id"]][0]
    ):
        return UNKNOWN
    if added is not None:
        return CONTROL if added["special"] else USER_DEFINED
    return BYTE if model.get("byte_fallback") and _BYTES.fullmatch(text) else NORMAL


def _roles(tokenizer: HuggingFaceTokenizer) -> JsonObject:
    """The ids of the tokens with a role, and whether texts begin and end with one."""
    found: JsonObject = {}
    for role, name in _ROLES.items():
        token = tokenizer.special_tokens.get(role)
        index = tokenizer.token_to_id(token) if isinstance(token, str) else None
        if index is not None:
            found[f"{name}_token_id"] = index
    ids = tokenizer.encode("", **tokenizer.template_options)
    found["add_bos_token"] = bool(ids) and ids[0] == found.get("bos_token_id")
    found["add_eos_token"] = bool(ids) and ids[-1] == found.get("eos_token_id")
    return found


def _byte_pair(tokens: _Tokens, source: str) -> JsonObject:
    name = pre_tokenizers.name_of(tokens.content.get("pre_tokenizer"), source)
    return {"model": "gpt2", "pre": name, "merges": [" ".join(each) for each in tokens.merges]}


def _sentencepiece(tokens: _Tokens, source: str) -> JsonObject:
    """Scores that order the pieces as the merges do."""
    scores: dict[str, float] = {}
    for rank, (one, two) in enumerate(tokens.merges):
        scores.setdefault(one + two, float(-rank))
    prefix = json.dumps([tokens.content.get(name) for name in ("normalizer", "pre_tokenizer")])
    adds_space = "Prepend" in prefix or ('"prepend_scheme"' in prefix and '"never"' not in prefix)
    found = {"model": "llama", "pre": "default", "add_space_prefix": adds_space}
    return found | {"scores": [scores.get(each, _LOWEST) for each in tokens.texts]}


def _unigram(tokens: _Tokens, source: str) -> JsonObject:
    scores = {piece: float(score) for piece, score in tokens.content["model"]["vocab"]}
    found = {"model": "t5", "pre": "default", "add_space_prefix": True, "remove_extra_whitespaces": True}
    found["scores"] = [scores.get(each, -1000.0) for each in tokens.texts]
    charsmap = re.search(r'"precompiled_charsmap": "([^"]+)"', json.dumps(tokens.content.get("normalizer")))
    return found | ({"precompiled_charsmap": base64.b64decode(charsmap.group(1))} if charsmap else {})


def _wordpiece(tokens: _Tokens, source: str) -> JsonObject:
    """Words are marked instead of their continuations."""
    texts = [_marked(text) if kind == NORMAL else text for text, kind in zip(tokens.texts, tokens.types, strict=True)]
    types = [CONTROL if kind == UNKNOWN else kind for kind in tokens.types]
    normalizer = tokens.content.get("normalizer") or {}
    lowercase = bool(normalizer.get("lowercase", True))
    strips = normalizer.get("strip_accents")
    options = {
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": lowercase if strips is None else bool(strips),
    }
    return {"model": "bert", "pre": "default", "tokens": texts, "token_type": types, **options}


def _marked(text: str) -> str:
    return text.removeprefix("##") if text.startswith("##") else SPACE + text


_WRITERS: dict[str, Callable[[_Tokens, str], JsonObject]] = {
    "BPE": _byte_pair,
    "SentencePiece": _sentencepiece,
    "Unigram": _unigram,
    "WordPiece": _wordpiece,
}
