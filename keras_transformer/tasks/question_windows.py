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
        offsets: list of pairs: `context[begin:stop]` is what the token stands for; `(0, 0)` outside the context.
        answer: pair of the first and the last token of the answer; `(0, 0)`, the first token, where the answer does not lie
            wholly in this window, or is not known.
    """

    token_ids: list[int]
    segment_ids: list[int]
    offsets: list[tuple[int, int]]
    answer: tuple[int, int]

    @property
    def context_mask(self) -> list[bool]:
        """list of bool: True for the tokens of the context, among which `best_spans` may choose."""
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
        question: str. What is longer than `max_question_length` is cut off.
        context: str.
        answer: pair of the answer's first character in `context` and its text, as SQuAD's files have it, or None.
        max_length: int. Tokens of a window, the special ones included.
        stride: int >= 1. How many tokens the next window begins after the last.
        max_question_length: int >= 1.

    Returns:
        list of `QuestionWindow`, at least one. Together they hold all of the context.

    Raises:
        ValueError: a window has no room for a token of the context; `stride` is below 1, or so large that windows would
            leave out tokens; the answer does not stand where it is said to.

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
    asked = tokenizer.encode(question, max_length=max_question_length)
    ids, offsets = tokenizer.encode_with_offsets(context)
    room = max_length - len(asked) - 3
    if room < 1:
        raise ValueError(f"max_length={max_length} leaves no room beside a question of {len(asked)} tokens.")
    if not 1 <= stride <= room:
        raise ValueError(f"stride must lie between 1 and {room}, the tokens of context in a window. Received: {stride}")
    place = None if answer is None else _place(offsets, context, *answer)
    prefix = len(asked) + 2
    windows = []
    for first in range(0, max(len(ids) - room, 0) + stride, stride):
        part = ids[first : first + room]
        windows.append(
            QuestionWindow(
                token_ids=[opening, *asked, closing, *part, closing],
                segment_ids=[0] * prefix + [1] * (len(part) + 1),
                offsets=[(0, 0)] * prefix + [(begin, stop) for begin, stop in offsets[first : first + room]] + [(0, 0)],
                answer=_within(place, first, len(part), prefix),
            )
        )
        if first + room >= len(ids):
            break
    return windows


def _frame(tokenizer):
    opening, closing = tokenizer.classification_id, tokenizer.separator_id
    return (
        tokenizer.opening_id() if opening is None else opening,
        tokenizer.closing_id() if closing is None else closing,
    )


def _place(offsets, context, begin, text):
    """First and last token that overlap the answer, or None."""
    stop = begin + len(text)
    if context[begin:stop] != text or not text:
        raise ValueError(f"The context has {context[begin:stop]!r} at character {begin}, not the answer {text!r}.")
    inside = [index for index, (first, last) in enumerate(offsets) if first < stop and last > begin]
    return (inside[0], inside[-1]) if inside else None


def _within(place, first, count, prefix):
    if place is None or place[0] < first or place[1] >= first + count:
        return (0, 0)
    return (place[0] - first + prefix, place[1] - first + prefix)
