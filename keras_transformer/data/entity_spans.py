"""Entity spans of BIO tags, and span F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.data.errors import TagError


class Span(NamedTuple):
    """An entity: its type, and its tokens from `start` (inclusive) to `end` (exclusive).

    Example:

    >>> span = Span("person", start=0, end=2)
    >>> ["Ada", "Lovelace", "wrote"][span.start : span.end]
    ['Ada', 'Lovelace']
    """

    label: str
    start: int
    end: int


class SpanScores(NamedTuple):
    """Precision, recall and F1 over all entities of all sentences, each 0 if its divisor is, and the counts.

    Example:

    >>> span_f1([["B-person", "O"]], [["B-person", "B-place"]]).precision
    0.5
    """

    precision: float
    recall: float
    f1: float
    expected: int
    predicted: int
    correct: int


def entity_spans(tags: Sequence[str]) -> list[Span]:
    """Extracts entities from BIO tags: B-X begins an entity of type X, I-X continues it, O is outside.

    I-X after O, or after another type, also begins an entity.

    Args:
        tags: sequence of str, one per token.

    Returns:
        List of `Span`, from left to right.

    Raises:
        TagError: a tag other than O, B-type and I-type.

    Example:

    >>> entity_spans(["B-person", "I-person", "O", "I-place", "B-place"])
    [Span(label='person', start=0, end=2), Span(label='place', start=3, end=4), Span(label='place', start=4, end=5)]

    Reference: Tjong Kim Sang and De Meulder, arXiv cs/0306050, section 2, and the conlleval script.
    """
    spans: list[Span] = []
    label, start = None, 0
    for index, tag in enumerate(tags):
        prefix, _, kind = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or not kind):
            raise TagError(f"Token {index}: expected O, B-type or I-type. Received: {tag!r}")
        if label is not None and (prefix != "I" or kind != label):
            spans.append(Span(label, start, index))
            label = None
        if tag != "O" and label is None:
            label, start = kind, index
    if label is not None:
        spans.append(Span(label, start, len(tags)))
    return spans


def span_f1(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Scores tags by whole entities: an entity is correct if its type, first and last token are.

        precision = correct / predicted,  recall = correct / expected,  F1 = 2 correct / (predicted + expected)

    Args:
        expected: list of sequences of BIO tags, one per sentence.
        predicted: list of sequences of BIO tags, of the same lengths.

    Returns:
        `SpanScores`: precision, recall and F1, from 0 to 1, and the counts they are computed from.

    Raises:
        TagError: numbers of sentences or tokens differ; an invalid tag.

    Example:

    >>> span_f1([["B-person", "I-person", "O", "B-place"]], [["B-person", "O", "O", "B-place"]])
    SpanScores(precision=0.5, recall=0.5, f1=0.5, expected=2, predicted=2, correct=1)

    Reference: Tjong Kim Sang and De Meulder, arXiv cs/0306050, section 2.3.
    """
    if len(expected) != len(predicted):
        raise TagError(f"Expected tags of {len(expected)} sentences. Received: {len(predicted)}")
    counts = [0, 0, 0]
    for index, (true_tags, found_tags) in enumerate(zip(expected, predicted, strict=True)):
        if len(true_tags) != len(found_tags):
            raise TagError(f"Sentence {index} has {len(true_tags)} tokens. Received: {len(found_tags)} tags")
        try:
            true, found = set(entity_spans(true_tags)), set(entity_spans(found_tags))
        except TagError as error:
            raise TagError(f"Sentence {index}: {error}") from None
        counts = [
            total + number for total, number in zip(counts, (len(true), len(found), len(true & found)), strict=True)
        ]
    in_truth, in_answer, correct = counts
    return SpanScores(
        precision=correct / in_answer if in_answer else 0.0,
        recall=correct / in_truth if in_truth else 0.0,
        f1=2 * correct / (in_truth + in_answer) if in_truth + in_answer else 0.0,
        expected=in_truth,
        predicted=in_answer,
        correct=correct,
    )
