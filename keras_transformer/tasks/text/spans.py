"""Decoding and scoring of answer spans. Needs numpy only."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from keras_transformer.utils.types import ArrayLike


class AnswerSpan(NamedTuple):
    """A span of tokens, both ends included, with the sum of its start and end logits.

    Example:

    >>> AnswerSpan(start=1, end=3, score=5.0).end
    3
    """

    start: int
    end: int
    score: float


def best_spans(
    start_logits: ArrayLike, end_logits: ArrayLike, context_mask: ArrayLike, *, max_length: int = 30, num_best: int = 1
) -> list[list[AnswerSpan]]:
    """Finds the spans with the highest `start_logits[i] + end_logits[j]` with `i <= j < i + max_length`, inside the context.

    Args:
        start_logits: float `(B, T)`.
        end_logits: float `(B, T)`.
        context_mask: boolean `(B, T)`, True for tokens of an answer: not in the question, special tokens or padding. Spans
            are contiguous in it.
        max_length: int >= 1. Tokens of the longest span.
        num_best: int >= 1. Spans per row, best first.

    Returns:
        For each row a list of `num_best` `AnswerSpan`, or fewer if there are fewer; ties are sorted by start, then by
        length.

    Raises:
        ValueError: arrays that differ in shape or are not `(B, T)`; a count below 1.

    Example:

    >>> best_spans([[9.0, 1.0, 0.0, 3.0]], [[9.0, 4.0, 2.0, 0.0]], [[0, 1, 1, 1]])
    [[AnswerSpan(start=1, end=1, score=5.0)]]

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.2; the limits on length and position are those of its
    published code.
    """
    starts, ends = (np.asarray(logits, "float64") for logits in (start_logits, end_logits))
    allowed = np.asarray(context_mask, bool)
    if starts.ndim != 2 or starts.shape != ends.shape or starts.shape != allowed.shape:
        raise ValueError(
            "start_logits, end_logits and context_mask must have one shape (B, T)."
            f" Received: {starts.shape}, {ends.shape}, {allowed.shape}"
        )
    if max_length < 1 or num_best < 1:
        raise ValueError(f"max_length and num_best must be at least 1. Received: {max_length} and {num_best}")
    return [_row_spans(*row, max_length, num_best) for row in zip(starts, ends, allowed, strict=True)]


def _row_spans(starts, ends, allowed, max_length, num_best):
    length = len(starts)
    # Row i, column w: the span from i to i + w; `(T, max_length)`, not `(T, T)`.
    stops = np.arange(length)[:, None] + np.arange(min(max_length, length))
    inside = stops < length
    stops = np.minimum(stops, length - 1)
    gaps = np.concatenate([[0], np.cumsum(~allowed)])
    inside &= gaps[stops + 1] == gaps[np.arange(length)][:, None]
    scores = np.where(inside, starts[:, None] + ends[stops], -np.inf).ravel()
    order = np.argsort(-scores, kind="stable")[: min(num_best, int(inside.sum()))]
    width = stops.shape[1]
    return [AnswerSpan(int(i // width), int(i // width + i % width), float(scores[i])) for i in order]


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Normalizes an answer as in SQuAD: lower case, without ASCII punctuation and English articles, single spaces.

    Example:

    >>> normalize_answer(" The Eiffel-Tower, a  tower!")
    'eiffeltower tower'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> float:
    """1.0 if `prediction` is one of `answers` (list of str), both normalized; else 0.0.

    Example:

    >>> exact_match("the Broncos.", ["Denver Broncos", "Broncos"])
    1.0

    Reference: Rajpurkar et al., SQuAD, arXiv 1606.05250, section 6.1.
    """
    return float(any(normalize_answer(prediction) == normalize_answer(answer) for answer in answers))


def answer_f1(prediction: str, answers: Iterable[str]) -> float:
    """The largest F1, over `answers` (list of str), of the words that prediction and answer share.

    Example:

    >>> answer_f1("Denver Broncos", ["the Broncos"])  # precision 1/2, recall 1
    0.6666666666666666

    Reference: Rajpurkar et al., SQuAD, arXiv 1606.05250, section 6.1.
    """
    return max(_f1(normalize_answer(prediction).split(), normalize_answer(answer).split()) for answer in answers)


def _f1(found, wanted):
    shared = sum((collections.Counter(found) & collections.Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted)) if shared else 0.0
