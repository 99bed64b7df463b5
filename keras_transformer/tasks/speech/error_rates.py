"""Error rates of transcripts. Needs numpy only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Returns the smallest number of insertions, deletions and substitutions that turn one sequence into the other.

    Args:
        first, second: str, or sequences of words.

    Returns:
        int.

    Example:

    >>> edit_distance("kitten", "sitting")
    3

    Reference: Levenshtein, Binary codes capable of correcting deletions, insertions, and reversals, 1966; Wagner and
    Fischer, The String-to-String Correction Problem, 1974.
    """
    ids: dict[Hashable, int] = {}
    columns = np.array([ids.setdefault(item, len(ids)) for item in second], int)
    places = np.arange(len(columns) + 1)
    costs = places.copy()
    for item in first:
        different = columns != ids.get(item, -1)
        below = np.minimum(costs[1:] + 1, costs[:-1] + different)
        # Insertions, one after another: the smallest of each cost plus its distance.
        costs = np.minimum.accumulate(np.concatenate([costs[:1] + 1, below]) - places) + places
    return int(costs[-1])


def word_error_rate(texts: Iterable[str], references: Iterable[str]) -> float:
    """Returns the word error rate of a corpus: the edit distances in words, over the words of the references.

    Words are separated by whitespace. Letters and punctuation are compared as they are.

    Args:
        texts: list of str.
        references: list of str, one per text.

    Returns:
        float >= 0; above 1 for texts with many words too much.

    Raises:
        ValueError: different numbers of texts, or references without words.

    Example:

    >>> word_error_rate(["the cat sat", "a dog"], ["the cat sat down", "a dog"])
    0.16666666666666666

    Reference: NIST, sclite.
    """
    return _rate([text.split() for text in texts], [text.split() for text in references])


def character_error_rate(texts: Iterable[str], references: Iterable[str]) -> float:
    """Returns the character error rate of a corpus: the edit distances in characters, over those of the references.

    Args:
        texts: list of str.
        references: list of str, one per text.

    Returns:
        float >= 0.

    Raises:
        ValueError: different numbers of texts, or empty references.

    Example:

    >>> character_error_rate(["sevn"], ["seven"])
    0.2
    """
    return _rate(list(texts), list(references))


def _rate(texts: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> float:
    if len(texts) != len(references):
        raise ValueError(f"Expected one reference per text, {len(texts)}. Received: {len(references)}")
    total = sum(map(len, references))
    if not total:
        raise ValueError("The references are empty.")
    return sum(edit_distance(*pair) for pair in zip(texts, references, strict=True)) / total
