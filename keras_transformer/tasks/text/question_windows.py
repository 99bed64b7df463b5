"""Question and context in one sequence, with overlapping windows over a long context. Needs Python only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer


class QuestionWindow(NamedTuple):
    """A question with one window of its context.

    Attributes:
        token_ids: list of int: [CLS] question [SEP] context [SEP].
        segment_ids: list of int: 0 up to the first separator, then 1.
        offsets: list of pairs: `context[begin:stop]` is the text of the token; `(0, 0)` outside the context.
        answer: pair of the first and the last token of the answer; `(0, 0)`, the first token, if the window does not contain
            the whole answer, or it is unknown.

    Example:

    >>> QuestionWindow([1, 5, 2, 6, 2], [0, 0, 0, 1, 1], [(0, 0)] * 3 + [(0, 4), (0, 0)], (3, 3)).context_mask
    [False, False, False, True, False]
    """

    token_ids: list[int]
    segment_ids: list[int]
    offsets: list[tuple[int, int]]
    answer: tuple[int, int]

    @property
    def context_mask(self) -> list[bool]:
        """list of bool: True for the tokens of the context, as for `best_spans`."""
        return [stop > begin for begin, stop in self.offsets]


def question_windows(
    tokenizer: Tokenizer,
    question: str,
    context: str,
    *,
    answer: tuple[int, str] | None = None,
    max_length: int = 384,
    stride: int = 128,
    max_question_length: int = 64,
) -> list[QuestionWindow]:
    """Splits the context of a question into overlapping windows, each preceded by the question.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text` with a classification and a separator token, or a start and an end
            token.
        question: str. It is truncated to `max_question_length` tokens.
        context: str.
        answer: pair of the answer's first character in `context` and its text, as in SQuAD, or None.
        max_length: int. Tokens of a window, special tokens included.
        stride: int >= 1. Tokens between the starts of consecutive windows.
        max_question_length: int >= 1.

    Returns:
        list of `QuestionWindow`, at least one. Together they contain the whole context.

    Raises:
        ValueError: no space for context in a window; `stride` below 1, or so large that windows skip tokens; `answer`
            does not match the context.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "is", "it", "am"])
    >>> windows = question_windows(tokenizer, "who", "it is who am", answer=(6, "who"), max_length=6, stride=2)
    >>> [tokenizer.decode(window.token_ids, skip_special_tokens=False) for window in windows]
    ['[CLS] who [SEP] it is [SEP]', '[CLS] who [SEP] who am [SEP]']
    >>> [window.answer for window in windows]
    [(0, 0), (3, 3)]

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.2, with the sliding windows (`doc_stride`) of its published
    code.
    """
    opening, closing = _frame(tokenizer)
    question_ids = tokenizer.encode(question, max_length=max_question_length)
    ids, offsets = tokenizer.encode_with_offsets(context)
    capacity = max_length - len(question_ids) - 3
    if capacity < 1:
        raise ValueError(f"max_length={max_length} leaves no context after a question of {len(question_ids)} tokens.")
    if not 1 <= stride <= capacity:
        raise ValueError(
            f"stride must be in [1, {capacity}], the number of context tokens in a window. Received: {stride}"
        )
    span = None if answer is None else _token_span(offsets, context, *answer)
    prefix = len(question_ids) + 2
    windows = []
    for first in range(0, max(len(ids) - capacity, 0) + stride, stride):
        part = ids[first : first + capacity]
        windows.append(
            QuestionWindow(
                token_ids=[opening, *question_ids, closing, *part, closing],
                segment_ids=[0] * prefix + [1] * (len(part) + 1),
                offsets=[(0, 0)] * prefix
                + [(begin, stop) for begin, stop in offsets[first : first + capacity]]
                + [(0, 0)],
                answer=_within(span, first, len(part), prefix),
            )
        )
        if first + capacity >= len(ids):
            break
    return windows


def _frame(tokenizer):
    opening, closing = tokenizer.classification_id, tokenizer.separator_id
    return (
        tokenizer.opening_id() if opening is None else opening,
        tokenizer.closing_id() if closing is None else closing,
    )


def _token_span(offsets, context, begin, text):
    """First and last token that overlap the answer, or None."""
    stop = begin + len(text)
    if context[begin:stop] != text or not text:
        raise ValueError(
            f"answer {text!r} must start at character {begin} of the context. Found: {context[begin:stop]!r}"
        )
    inside = [index for index, (first, last) in enumerate(offsets) if first < stop and last > begin]
    return (inside[0], inside[-1]) if inside else None


def _within(span, first, count, prefix):
    if span is None or span[0] < first or span[1] >= first + count:
        return (0, 0)
    return (span[0] - first + prefix, span[1] - first + prefix)
