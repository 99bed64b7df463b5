"""Tokenizers as Hugging Face files, which other engines read: `tokenizer.json` and `tokenizer_config.json`."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
KINDS = ("byte_pair", "bytes")
_ROLES = {"start": "bos_token", "end": "eos_token", "pad": "pad_token", "unknown": "unk_token", "mask": "mask_token"}


def tokenizer_json(tokenizer: Tokenizer, engine: str) -> JsonObject:
    """Returns the content of `tokenizer.json`.

    Args:
        tokenizer: a `BytePair`, or a `Bytes`, which is written as a byte-level vocabulary without merges.
        engine: name of the engine, for the error.

    Returns:
        dict. It adds no special tokens around a text.

    Raises:
        InvalidModelError: another kind of tokenizer.

    Example:

    >>> from keras_transformer.text import Bytes
    >>> content = tokenizer_json(Bytes(), "onnxruntime-genai")
    >>> content["model"]["vocab"]["A"], content["model"]["merges"]
    (69, [])
    """
    if tokenizer.kind not in KINDS:
        raise InvalidModelError(
            f"{engine} reads tokenizers of the kinds {', '.join(KINDS)}, not {tokenizer.kind}: pass tokenizer=False to write"
            " the model without one"
        )
    content = _written(tokenizer) if tokenizer.kind == "byte_pair" else _byte_level(tokenizer)
    return {**content, "truncation": None, "padding": None, "post_processor": None}


def tokenizer_config(tokenizer: Tokenizer, max_length: int | None) -> JsonObject:
    """Returns the content of `tokenizer_config.json`: the special tokens."""
    return {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        **special_tokens(tokenizer),
    }


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Returns the special tokens of a tokenizer under their names in `tokenizer_config.json`."""
    found = tokenizer.special_tokens
    return {name: found[role] for role, name in _ROLES.items() if found.get(role)}


def write_hugging_face(tokenizer: Tokenizer, directory: pathlib.Path, max_length: int | None, engine: str) -> None:
    """Writes both files into a directory."""
    for name, content in (
        (FILE, tokenizer_json(tokenizer, engine)),
        (CONFIG, tokenizer_config(tokenizer, max_length)),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (directory / name).write_text(text + "\n", encoding="utf-8")


def _written(tokenizer: Tokenizer):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer")
        tokenizer.save(path)
        return json.loads((path / FILE).read_text(encoding="utf-8"))


def _byte_level(tokenizer: Any):
    from keras_transformer.text.tokenizers.byte_pair import byte_alphabet

    first = tokenizer.token_to_id("<0x00>")
    special = {tokenizer.id_to_token(index): index for index in range(first)}
    vocabulary = special | {character: first + value for character, value in byte_alphabet().items()}
    added = [
        {"id": index, "content": token, "special": True, **dict.fromkeys(_MATCHING, False)}
        for token, index in special.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            **_BPE,
            "vocab": dict(sorted(vocabulary.items(), key=lambda each: each[1])),
            "merges": [],
        },
    }


_MATCHING = ("single_word", "lstrip", "rstrip", "normalized")
_BPE = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
