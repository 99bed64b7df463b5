"""Beam search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.protocols import Sampler, ScoredSearch, Search

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput

NORMALIZERS = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "hugging_face": lambda length, alpha: length**alpha,
}
EARLY_STOPPING = (False, True, "never")


@dataclasses.dataclass(frozen=True)
class BeamSearch(Sampler):
    """Beam search: keeps the `num_beams` most likely partial sequences at every step and returns those with the best scores.

    The score of a sequence Y is log P(Y) / lp(Y), with lp(Y) = ((5 + |Y|) / 6)^alpha for "gnmt" and lp(Y) = |Y|^alpha for
    "hugging_face". |Y| is the number of new tokens, including the end token or stop sequence, without the prompt.

    Args:
        num_beams: int >= 1. Default 4.
        length_penalty: float. alpha; 0 for plain log-probabilities, larger values favor longer sequences. Default 1.0.
        normalizer: "gnmt" or "hugging_face". Default "gnmt".
        early_stopping: when the search of a prompt with `num_beams` finished sequences ends. True: immediately. False: when
            no live beam at its current length has a better score than the worst of them. "never": when no continuation of a
            live beam can have one, which is exact and takes longer. Default False.
        num_results: int, 1 to `num_beams`. Number of sequences for each prompt, or fewer if no more exist. Default 1.

    Returns:
        `search(request)`: the `ScoredSearch` of one request.

    Raises:
        ValueError: an argument is out of range.

    Notes:
        A sequence is finished at an end token, a stop sequence or the maximum length: see `DecodingRequest.is_finished`.
        The repetition penalty changes the logits before the softmax, so scores stay logarithms of probabilities.
        The model reads `num_beams` rows per prompt, and each step reorders the cache. Streaming is not supported.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation.decoding_request import ModelOutput, DecodingRequest
    >>> request = DecodingRequest([np.array([0])], max_new_tokens=1, seeds=[None])
    >>> search = BeamSearch(num_beams=2, num_results=2).search(request)
    >>> search.advance(ModelOutput(np.log([[[0.2, 0.5, 0.3]]]), hidden_states=None))
    >>> search.results(), np.exp(search.scores()).round(3).tolist()
    ([[[1], [2]]], [[0.5, 0.3]])

    Reference: Wu et al., Google's Neural Machine Translation System, arXiv 1609.08144, section 7 and equation 14, without
    the coverage penalty and the pruning. "hugging_face" and `early_stopping` are those of `generate(num_beams=...)` in
    transformers 5, except that transformers applies a repetition penalty to log-probabilities, after the softmax.
    """

    num_beams: int = 4
    length_penalty: float = 1.0
    normalizer: str = "gnmt"
    early_stopping: bool | str = False
    num_results: int = 1

    streams = False
    has_scores = True

    def __post_init__(self) -> None:
        if not isinstance(self.num_beams, int) or self.num_beams < 1:
            raise ValueError(f"num_beams must be a positive integer. Received: {self.num_beams!r}")
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f"normalizer must be one of {', '.join(NORMALIZERS)}. Received: {self.normalizer!r}")
        if self.early_stopping not in EARLY_STOPPING:
            raise ValueError(f"early_stopping must be False, True or 'never'. Received: {self.early_stopping!r}")
        if not isinstance(self.num_results, int) or not 1 <= self.num_results <= self.num_beams:
            raise ValueError(f"num_results must be in 1 to num_beams={self.num_beams}. Received: {self.num_results!r}")

    def normalize(self, log_probability: float, length: int) -> float:
        """Returns the score of a sequence of `length` new tokens."""
        return log_probability / NORMALIZERS[self.normalizer](length, self.length_penalty)

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        return BatchBeams(self, request)


class BatchBeams(ScoredSearch):
    """The decoding state of one request: the beams of all prompts as rows of one batch. Implements `protocols.ScoredSearch`.

    Args:
        options: `BeamSearch`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: BeamSearch, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._beams = [Beams(options, request) for _ in request.prompts]
        # Batch rows of each prompt: 1 for the prompt, then `num_beams`.
        self._width = 1

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `protocols.Search`."""
        logits = self.request.process_logits(np.asarray(output.logits)[:, -1], self._rows())
        log_probs = numpy_ops.log_softmax(logits)
        for first, beams in zip(range(0, len(log_probs), self._width), self._beams, strict=True):
            if not beams.is_done:
                beams.extend(log_probs[first : first + len(beams.live)])
        if all(beams.is_done for beams in self._beams):
            return None
        model_input = self._model_input()
        self._width = self.options.num_beams
        return model_input

    def _rows(self) -> Iterator[tuple[int, list[int] | None]]:
        """Yields the prompt and the new tokens of each row. Rows without a live beam are not used."""
        for prompt, beams in enumerate(self._beams):
            live = [] if beams.is_done else [beam.tokens for beam in beams.live]
            for number in range(self._width):
                yield prompt, live[number] if number < len(live) else None

    def _model_input(self) -> ModelInput:
        rows, last, index = [], [], []
        for number, (prompt, beams) in enumerate(zip(self.request.prompts, self._beams, strict=True)):
            for beam_index in range(self.options.num_beams):
                if beams.is_done:
                    # Reads the last prompt token again at its own index; the output is ignored.
                    parent, token, position = 0, prompt[-1], len(prompt) - 1
                else:
                    # With fewer live beams than rows, the remaining rows repeat the first beam.
                    beam = beams.live[beam_index if beam_index < len(beams.live) else 0]
                    parent, token, position = beam.parent, beam.tokens[-1], len(prompt) + len(beam.tokens) - 1
                rows.append(number * self._width + parent)
                last.append([token])
                index.append(position)
        return ModelInput(np.array(last, "int32"), np.array(index, "int32"), np.array(rows, "int32"))

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of the best sequences of each prompt, best first."""
        return [[tokens for _, tokens in beams.best] for beams in self._beams]

    def scores(self) -> list[list[float]]:
        """Returns the score of each sequence in `results`."""
        return [[score for score, _ in beams.best] for beams in self._beams]


class Beam(NamedTuple):
    """An unfinished sequence.

    Attributes:
        log_probability: float. Log-probability of the new tokens.
        tokens: list of int. New tokens.
        parent: int. Index of the beam of the previous step that it continues.
    """

    log_probability: float
    tokens: list[int]
    parent: int


class Beams:
    """The beams of one prompt.

    Args:
        options: `BeamSearch`.
        request: `DecodingRequest`.

    Attributes:
        live: list of `Beam`, best first. Unfinished sequences.
        finished: list of pairs of score and new tokens, best first.
        is_done: bool. Whether the search of the prompt has ended.
    """

    def __init__(self, options: BeamSearch, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.live = [Beam(0.0, [], 0)]
        self.finished: list[tuple[float, list[int]]] = []
        self.is_done = False

    @property
    def best(self) -> list[tuple[float, list[int]]]:
        """list of pairs of score and new tokens, best first."""
        return self.finished[: self.options.num_results]

    def extend(self, log_probs: np.ndarray) -> None:
        """Extends the live beams by a token, given its log-probabilities `(live beams, V)`."""
        num_beams = self.options.num_beams
        live: list[Beam] = []
        finished: list[tuple[float, list[int]]] = []
        previous = np.array([beam.log_probability for beam in self.live])
        for rank, (total, parent, token) in enumerate(_ranked(log_probs, previous, 2 * num_beams)):
            tokens = [*self.live[parent].tokens, token]
            if not self.request.is_finished(tokens):
                live.append(Beam(total, tokens, parent))
            elif rank < num_beams:
                # A finished sequence must be among the best `num_beams`; lower ranks only supply live beams.
                finished.append((self.options.normalize(total, len(tokens)), tokens))
            if rank + 1 >= num_beams and (len(live) == num_beams or len(tokens) == self.request.max_new_tokens):
                break
        self.live = live
        self.finished = sorted(self.finished + finished, key=lambda each: -each[0])[:num_beams]
        self.is_done = not live or self._can_stop()

    def _can_stop(self) -> bool:
        """Returns whether `early_stopping` ends the search although there are live beams."""
        if len(self.finished) < self.options.num_beams:
            return False
        if self.options.early_stopping is True:
            return True
        length = len(self.live[0].tokens)
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            length = self.request.max_new_tokens
        return self.options.normalize(self.live[0].log_probability, length) <= self.finished[-1][0]


def _ranked(log_probs: np.ndarray, previous: np.ndarray, count: int) -> Iterator[tuple[float, int, int]]:
    """Yields continuations `(log_probability, beam, token)`, best first, ranking the best `count` first for speed.

    Args:
        log_probs: float32 `(beams, V)`. Log-probabilities of the next token.
        previous: float64 `(beams,)`. Log-probability of each beam.
        count: int. Number of continuations that are usually needed.
    """
    taken = 0
    while taken < log_probs.size:
        # The best `count` continuations include at most `count` of each beam.
        values, tokens = numpy_ops.top_k(log_probs, min(count, log_probs.shape[1]))
        totals = (values + previous[:, None]).ravel()
        for index in np.argsort(-totals, kind="stable")[taken:count]:
            if totals[index] == float("-inf"):
                return
            yield float(totals[index]), int(index) // tokens.shape[1], int(tokens.flat[index])
        taken, count = count, 4 * count
