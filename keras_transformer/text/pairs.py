"""Encoding of text pairs as one sequence, in the format of BERT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.text.errors import TextError

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


def encode_pair(tokenizer: Tokenizer, first: Any, second: Any, max_length: int | None = None) -> tuple[list, list]:
    """Token ids and segment ids of text pairs; see `Tokenizer.encode_pair`."""
    single = isinstance(first, str)
    if single != isinstance(second, str) or (not single and len(first) != len(second)):
        raise TextError("first and second must both be str, or lists of str of the same length.")
    opening = _id(tokenizer.classification_id, tokenizer.opening_id)
    closing = _id(tokenizer.separator_id, tokenizer.closing_id)
    if max_length is not None and max_length < 3:
        raise TextError(f"max_length must be at least 3, for the special tokens of a pair. Received: {max_length!r}")
    pairs = zip(
        tokenizer.encode([first] if single else first), tokenizer.encode([second] if single else second), strict=True
    )
    rows, segments = [], []
    for one, two in pairs:
        if max_length is not None:
            one, two = truncate_longest_first(one, two, max_length - 3)
        rows.append([opening, *one, closing, *two, closing])
        segments.append([0] * (len(one) + 2) + [1] * (len(two) + 1))
    return (rows[0], segments[0]) if single else (rows, segments)


def _id(index: int | None, default: Callable[[], int]) -> int:
    return default() if index is None else index


def truncate_longest_first(first: Sequence, second: Sequence, length: int) -> tuple[Sequence, Sequence]:
    """Truncates two sequences on the right to a total of at most `length` items.

    Items are removed one at a time from the longer sequence, and from the second if both have the same length.

    Example:

    >>> truncate_longest_first([1, 2, 3, 4, 5], [6, 7], 4)
    ([1, 2], [6, 7])
    >>> truncate_longest_first([1, 2, 3], [6, 7, 8], 5)
    ([1, 2, 3], [6, 7])
    """
    excess = len(first) + len(second) - length
    if excess <= 0:
        return first, second
    shorter = min(len(first), len(second))
    if length - shorter >= shorter:
        if len(first) > len(second):
            return first[: length - shorter], second
        return first, second[: length - shorter]
    return first[: (length + 1) // 2], second[: length // 2]
