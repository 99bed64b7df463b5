"""Two texts in one sequence, in BERT's manner."""

from __future__ import annotations

from typing import Any

from keras_transformer.text.errors import TextError


def encode_pair(tokenizer: Any, first: Any, second: Any, max_length: int | None = None) -> tuple[list, list]:
    """Ids and segment ids of pairs of texts; see `Tokenizer.encode_pair`."""
    single = isinstance(first, str)
    if single != isinstance(second, str) or (not single and len(first) != len(second)):
        raise TextError("first and second must both be str, or lists of str of the same length.")
    opening = _id(tokenizer, "classification_id", tokenizer.opening_id)
    closing = _id(tokenizer, "separator_id", tokenizer.closing_id)
    if max_length is not None and max_length < 3:
        raise TextError(f"max_length must hold the three special tokens of a pair. Received: {max_length!r}")
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


def _id(tokenizer: Any, name: Any, otherwise: Any):
    return otherwise() if getattr(tokenizer, name) is None else getattr(tokenizer, name)


def truncate_longest_first(first: Any, second: Any, length: int) -> Any:
    """Cuts the ends of two lists so that together they have `length` items at most.

    One item at a time goes from the longer of the two, from the second where they are equal.

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
