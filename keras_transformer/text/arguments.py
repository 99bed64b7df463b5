"""Conversion of arguments to lists: texts, token ids and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_transformer.text.errors import TextError


def as_list(text: str | Sequence[str]) -> tuple[list[str], bool]:
    """Returns a list of str, and whether `text` is a single str."""
    if isinstance(text, str):
        return [text], True
    if isinstance(text, (bytes, dict)) or not hasattr(text, "__iter__"):
        raise TextError(f"Expected a str or a list of str. Received: {type(text).__name__}")
    texts = list(text)
    for index, each in enumerate(texts):
        if not isinstance(each, str):
            raise TextError(f"Expected a list of str. Item {index} is {type(each).__name__}")
    return texts, False


def as_rows(ids: Any) -> list[Any]:
    """Returns token ids as a list of int, or as a list with one item for each text."""
    for method in ("numpy", "tolist"):
        # The `numpy` of a ragged tensor is an array of arrays.
        if hasattr(ids, method):
            ids = getattr(ids, method)()
    if isinstance(ids, (str, bytes, dict)) or not hasattr(ids, "__iter__"):
        raise TextError(f"Expected token ids: a list of int, or a list of such lists. Received: {ids!r}")
    return list(ids)


def word_indices(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Word index of each token, for words joined by spaces; -1 for a token that covers only the space."""
    word_of = [index for number, word in enumerate(words) for index in [*[number] * len(word), -1]]
    return [word_of[stop - 1] if stop > begin else -1 for begin, stop in offsets]
