"""Tokenizers of speech synthesis, as of VITS and MMS-TTS."""

from __future__ import annotations

import os
from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.vocabulary_ids import read_vocabulary
from keras_transformer.text.tokenizers.interspersed_characters import InterspersedCharacters
from keras_transformer.utils.types import Path

_FILE = "vocab.json"
# As `VitsTokenizer` does: the language has two letters of one sound, and the vocabulary one of them.
_REPLACEMENTS = {"ron": {"ț": "ţ"}}
_ROLES = {"unk_token": "unknown", "pad_token": "pad"}


def is_interspersed(config: dict[str, Any]) -> bool:
    """Returns whether the merged config files are those of a tokenizer of VITS."""
    return config.get("tokenizer_class") == "VitsTokenizer"


def interspersed(folder: Path, config: dict[str, Any]) -> InterspersedCharacters:
    """Returns the tokenizer of a folder with `vocab.json` of VITS.

    Args:
        folder: str or path.
        config: dict. The merged config files.

    Raises:
        InvalidTokenizerError: the file is missing, or not an object of token to id; an option is no boolean.
    """
    path = os.path.join(folder, _FILE)
    vocabulary = read_vocabulary(path)
    roles = {}
    for key, role in _ROLES.items():
        token = config.get(key, "<unk>" if role == "unknown" else "<pad>")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token:
            vocabulary.setdefault(token, len(vocabulary))
            roles[role] = token
    speaks_phonemes = _flag(path, config, "phonemize", True)
    is_roman = _flag(path, config, "is_uroman", False)
    return InterspersedCharacters(
        vocabulary,
        roles,
        blanks=_flag(path, config, "add_blank", True),
        normalize=_flag(path, config, "normalize", True),
        spelling="phonemes" if speaks_phonemes else "roman" if is_roman else None,
        replacements=_REPLACEMENTS.get(str(config.get("language"))),
    )


def _flag(path: str, config: dict[str, Any], name: str, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InvalidTokenizerError(f"'{path}': {name} must be true or false. Received: {value!r:.80}")
    return value
