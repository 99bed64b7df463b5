"""The vocabulary of a tokenizer as MediaPipe's WordPiece reads it."""

from __future__ import annotations

from typing import Any

from keras_transformer.export.errors import InvalidModelError

_NEEDED = ("[CLS]", "[SEP]", "[UNK]")


def mediapipe_vocabulary(tokenizer: Any) -> list[str]:
    """Returns the tokens in the order of their ids.

    MediaPipe lowercases ASCII letters, splits at whitespace, punctuation and Chinese characters, and adds [CLS] and [SEP].
    It does not strip accents: texts with accents or with capital letters outside ASCII may have other ids.

    Args:
        tokenizer: a `WordPiece`, or a `HuggingFaceTokenizer` of that kind, that lowercases text.

    Returns:
        List of str.

    Raises:
        InvalidModelError: it is another tokenizer, keeps case, or lacks a special token.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> mediapipe_vocabulary(WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]))[4]
    'cat'
    """
    if tokenizer is None:
        raise InvalidModelError("MediaPipe takes text: a text task needs a tokenizer")
    found, lowercase = _content(tokenizer)
    if not lowercase:
        raise InvalidModelError("MediaPipe lowercases text; the tokenizer keeps case")
    missing = [token for token in _NEEDED if token not in found]
    if missing:
        raise InvalidModelError(f"MediaPipe needs the tokens {', '.join(_NEEDED)}; the vocabulary lacks {missing[0]}")
    return found


def _content(tokenizer: Any) -> tuple[list[str], bool]:
    if tokenizer.kind == "wordpiece":
        return list(tokenizer.vocabulary), tokenizer.lowercase
    if tokenizer.kind == "hugging_face" and tokenizer.content["model"].get("type") == "WordPiece":
        ids = tokenizer.content["model"]["vocab"]
        normalizer = tokenizer.content.get("normalizer") or {}
        return sorted(ids, key=ids.get), bool(normalizer.get("lowercase"))
    raise InvalidModelError(f"MediaPipe reads WordPiece tokenizers, not {tokenizer.kind}")
