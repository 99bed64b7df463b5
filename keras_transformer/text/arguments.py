"""Arguments of tokenizers: texts, token ids and words as lists, and the length that texts are truncated to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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


def text_length(max_length: int | None, num_special: int) -> int | None:
    """Returns the number of tokens that `max_length` leaves for the text; None for no limit.

    Raises:
        TextError: `max_length` is not an int, or too small for the special tokens.
    """
    if max_length is None:
        return None
    if not isinstance(max_length, (int, np.integer)) or max_length < 1 or max_length < num_special:
        raise TextError(
            f"max_length must be an int, at least 1 and the number of special tokens. Received: {max_length!r}"
        )
    return int(max_length) - num_special


def truncated(row: list, length: int | None, side: str) -> list:
    """Returns the first or, with `side="left"`, the last `length` items of a list; all for None."""
    if length is None or len(row) <= length:
        return row
    return row[:length] if side == "right" else row[len(row) - length :]


def pair_lengths(first: int, second: int, total: int) -> tuple[int, int]:
    """Truncated lengths of two texts with at most `total` tokens together, as in the `tokenizers` library.

    Example:

    >>> pair_lengths(9, 2, 6), pair_lengths(9, 8, 5), pair_lengths(8, 9, 5)
    ((4, 2), (3, 2), (2, 3))
    """
    if first + second <= total:
        return first, second
    short, long = min(first, second), max(first, second)
    long = short if short > total else max(short, total - short)
    if short + long > total:
        short = total // 2
        long = total - short
    return (long, short) if first > second else (short, long)
