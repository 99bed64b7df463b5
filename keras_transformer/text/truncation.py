"""Truncation of one text, and of a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.text.errors import TextError


def text_length(max_length: Any, num_special: int) -> int | None:
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
