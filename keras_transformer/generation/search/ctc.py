"""Texts from the logits of connectionist temporal classification (CTC)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.utils.types import ArrayLike

# Below it a token has no probability, such as that of a padded frame.
_LEAST = -1e6

LanguageModelScore = Callable[[tuple[int, ...], "int | None"], float]


class CTCResult(NamedTuple):
    """A text of a beam search: its tokens, and its score.

    Example:

    >>> CTCResult(token_ids=[3, 1], score=-0.5).token_ids
    [3, 1]
    """

    token_ids: list[int]
    score: float


def ctc_greedy(logits: ArrayLike, blank_id: int = 0) -> list[list[int]]:
    """Returns the text of the most likely alignment of each row: without repetitions, then without blanks.

    Args:
        logits: float `(B, T, V)`, of `tasks.SpeechRecognizer` or of one of its exported files, where padding is blank.
        blank_id: int. Default 0.

    Returns:
        For each row a list of token ids.

    Raises:
        ValueError: logits of another rank, or a blank that is none of the tokens.

    Example:

    >>> ctc_greedy([[[0.1, 0.9], [0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]])
    [[1, 1]]

    Reference: Graves et al., Connectionist Temporal Classification, ICML 2006, section 3.2 (best path decoding).
    """
    rows = np.argmax(checked_logits(logits, blank_id), axis=-1)
    return [
        [int(token) for index, token in enumerate(row) if token != blank_id and (index == 0 or token != row[index - 1])]
        for row in rows
    ]


def ctc_beam_search(
    logits: ArrayLike,
    blank_id: int = 0,
    *,
    num_beams: int = 16,
    language_model: LanguageModelScore | None = None,
    language_weight: float = 0.5,
    length_bonus: float = 0.0,
    min_log_probability: float = -12.0,
    num_results: int = 1,
) -> list[list[CTCResult]]:
    """Prefix beam search: the texts y with the best `log P(y | x) + α Σ_i log P_lm(y_i | y_<i) + β |y|`.

    P(y | x) is the sum over the alignments of y, so that a text with many likely alignments can win against that of the most
    likely one.

    Args:
        logits: float `(B, T, V)`, of `tasks.SpeechRecognizer` or of one of its exported files, where padding is blank.
        blank_id: int. Default 0.
        num_beams: int >= 1. Number of prefixes that are kept at each frame. Default 16.
        language_model: function of a tuple of token ids and the token that follows them to its natural log-probability, and
            with None instead of a token to that of the end of the text; 0 for neither good nor bad, minus infinity for what
            never follows. A model of words may return 0 except where a word ends. None for no language model.
        language_weight: float, α. Default 0.5.
        length_bonus: float, β, for each token. A language model prefers short texts. Default 0.
        min_log_probability: float < 0. Tokens with less at a frame are not tried there. Default -12.
        num_results: int >= 1. Texts per row, best first. Default 1.

    Returns:
        For each row a list of `num_results` `CTCResult`, or fewer if fewer were found.

    Raises:
        ValueError: logits of another rank, a blank that is none of the tokens, or an argument out of its range.

    Example:

    >>> ctc_beam_search(np.log([[[0.6, 0.4], [0.6, 0.4]]]))[0][0].token_ids  # 0.64 against 0.36 for no token
    [1]

    Reference: Hannun et al., arXiv 1408.2873, algorithm 1. The language model scores every token, not every word, and β
    counts tokens.
    """
    if num_beams < 1 or num_results < 1 or not min_log_probability < 0:
        raise ValueError(
            "num_beams and num_results must be at least 1, and min_log_probability below 0. Received: "
            f"{num_beams}, {num_results} and {min_log_probability}"
        )
    search = _PrefixSearch(blank_id, num_beams, language_model, language_weight, length_bonus)
    logits = checked_logits(logits, blank_id)
    least = max(min_log_probability, _LEAST)
    return [search.run(row, least)[:num_results] for row in numpy_ops.log_softmax(logits)]


def checked_logits(logits: ArrayLike, blank_id: int) -> np.ndarray:
    """Returns logits `(B, T, V)` in float64.

    Raises:
        ValueError: another rank, or a blank that is none of the tokens.
    """
    logits = np.asarray(logits, "float64")
    if logits.ndim != 3 or not 0 <= blank_id < logits.shape[2]:
        raise ValueError(
            f"logits must be (B, T, V), and blank_id below V. Received: shape {logits.shape}, blank_id {blank_id}"
        )
    return logits


class _PrefixSearch:
    """The search of one row after another.

    A beam is a dict of prefix to its two log-probabilities: of the alignments that end with a blank, and of the others.
    """

    def __init__(
        self,
        blank_id: int,
        num_beams: int,
        language_model: LanguageModelScore | None,
        language_weight: float,
        length_bonus: float,
    ) -> None:
        self._blank_id = blank_id
        self._num_beams = num_beams
        self._language_model = language_model
        self._language_weight = language_weight
        self._length_bonus = length_bonus
        # Of each prefix, without the probability of its alignments.
        self._bonus: dict[tuple[int, ...], float] = {(): 0.0}

    def run(self, row: np.ndarray, least: float) -> list[CTCResult]:
        """Returns the texts of log-probabilities `(T, V)`, best first."""
        self._bonus = {(): 0.0}
        beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
        for frame in row:
            # The blank alone never fails, so that a beam is never empty.
            tokens = [int(token) for token in np.flatnonzero(frame >= least) if token != self._blank_id]
            following = self._step(beams, frame.tolist(), tokens)
            best = sorted(following, key=lambda prefix: self._score(prefix, following[prefix]), reverse=True)
            beams = {prefix: following[prefix] for prefix in best[: self._num_beams]}
        results = [
            CTCResult(list(prefix), self._score(prefix, pair) + self._of_language_model(prefix, None))
            for prefix, pair in beams.items()
        ]
        return sorted(results, key=lambda result: result.score, reverse=True)

    def _step(
        self, beams: dict[tuple[int, ...], tuple[float, float]], frame: Sequence[float], tokens: Sequence[int]
    ) -> dict[tuple[int, ...], tuple[float, float]]:
        """Returns the beams after one more frame."""
        following: dict[tuple[int, ...], tuple[float, float]] = {}

        def add(prefix: tuple[int, ...], blank: float, other: float) -> None:
            before = following.get(prefix, (-math.inf, -math.inf))
            following[prefix] = _log_add(before[0], blank), _log_add(before[1], other)

        for prefix, (blank, other) in beams.items():
            total, last = _log_add(blank, other), prefix[-1] if prefix else None
            add(prefix, total + frame[self._blank_id], -math.inf if last is None else other + frame[last])
            for token in tokens:
                longer = self._extended(prefix, token)
                if self._bonus[longer] > -math.inf:
                    # A token again is a new one after a blank only.
                    add(longer, -math.inf, (blank if token == last else total) + frame[token])
        return {prefix: pair for prefix, pair in following.items() if max(pair) > -math.inf}

    def _extended(self, prefix: tuple[int, ...], token: int) -> tuple[int, ...]:
        longer = (*prefix, token)
        if longer not in self._bonus:
            added = self._of_language_model(prefix, token) + self._length_bonus
            self._bonus[longer] = self._bonus[prefix] + added
        return longer

    def _of_language_model(self, prefix: tuple[int, ...], token: int | None) -> float:
        return 0.0 if self._language_model is None else self._language_weight * self._language_model(prefix, token)

    def _score(self, prefix: tuple[int, ...], pair: tuple[float, float]) -> float:
        return _log_add(*pair) + self._bonus[prefix]


def _log_add(first: float, second: float) -> float:
    """`log(e^first + e^second)`."""
    if first < second:
        first, second = second, first
    return first if second == -math.inf else first + math.log1p(math.exp(second - first))
