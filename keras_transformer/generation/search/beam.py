"""Beam search: the most likely texts as a whole, not token by token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.repetition import penalize_rows

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
    from keras_transformer.generation.protocols import Search

NORMALIZERS = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "hugging_face": lambda length, alpha: length**alpha,
}
EARLY_STOPPING = (False, True, "never")


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Keeps the `num_beams` most likely beginnings at every step, and finds the texts with the best scores.

    The score of a text Y is log P(Y) / lp(Y). With "gnmt" lp(Y) = ((5 + |Y|) / 6)^alpha, with "hugging_face"
    lp(Y) = |Y|^alpha. Either way |Y| counts the new tokens, the end token (or stop sequence) among them, and not the prompt.

    Args:
        num_beams: int >= 1. Default 4.
        length_penalty: float. alpha above: 0 compares plain log-probabilities, larger values favor longer texts.
            Default 1.0.
        normalizer: "gnmt" or "hugging_face". Default "gnmt".
        early_stopping: when a prompt with `num_beams` finished texts is done. True: at once. False: when no live beam, ended
            where it is, would beat the worst of them. "never": when no continuation can, which is exact and takes longer.
            Default False.
        num_results: int, 1 to `num_beams`: so many texts for each prompt. Default 1. Fewer come when no more are possible.

    Returns:
        `search(request)`: the course of one request. Its `results()` are the texts of each prompt, best first, and its
        `scores()` their scores.

    Raises:
        ValueError: an argument is out of its range.

    Notes:
        A beam is finished when `DecodingRequest.is_over` is True: at an end token, a stop sequence or the maximum length.
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
    the coverage penalty and the pruning. "hugging_face" and `early_stopping` as `generate(num_beams=...)` of transformers 5
    has them, except that there a repetition penalty is applied to log-probabilities after the softmax.
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
            raise ValueError(f"num_results must lie in 1 to num_beams={self.num_beams}. Received: {self.num_results!r}")

    def normalize(self, log_probability: float, length: int) -> Any:
        """The score of a text of `length` tokens."""
        return log_probability / NORMALIZERS[self.normalizer](length, self.length_penalty)

    def search(self, request: DecodingRequest) -> Search:
        """The course of one request."""
        return BatchBeams(self, request)


class BatchBeams:
    """The course of one request: the beams of every prompt, as rows of one batch.

    Args:
        options: `BeamSearch`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: Any, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._beams = [Beams(options, request) for _ in request.prompts]
        # Rows of the batch for each prompt: itself at first, then its beams.
        self._width = 1

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `TokenSearch`."""
        logits = penalize_rows(np.asarray(output.logits)[:, -1], self._texts(), self.request.repetition_penalty)
        log_probs = numpy_ops.log_softmax(logits)
        for first, beams in zip(range(0, len(log_probs), self._width), self._beams, strict=True):
            if not beams.is_done:
                beams.extend(log_probs[first : first + len(beams.live)])
        if all(beams.is_done for beams in self._beams):
            return None
        model_input = self._feed()
        self._width = self.options.num_beams
        return model_input

    def _texts(self) -> Any:
        """What each row has read. Rows that are not looked at may come as anything."""
        for prompt, beams in zip(self.request.prompts, self._beams, strict=True):
            for number in range(self._width):
                yield [*prompt, *(beams.live[number].tokens if number < len(beams.live) else ())]

    def _feed(self):
        rows, last, index = [], [], []
        for number, (prompt, beams) in enumerate(zip(self.request.prompts, self._beams, strict=True)):
            for place in range(self.options.num_beams):
                if beams.is_done:
                    # The last token of the prompt again, at its own place: whatever comes of it is not looked at.
                    parent, token, position = 0, prompt[-1], len(prompt) - 1
                else:
                    # Fewer live beams than rows: the first stands in for the others.
                    beam = beams.live[place if place < len(beams.live) else 0]
                    parent, token, position = beam.parent, beam.tokens[-1], len(prompt) + len(beam.tokens) - 1
                rows.append(number * self._width + parent)
                last.append([token])
                index.append(position)
        return ModelInput(np.array(last, "int32"), np.array(index, "int32"), np.array(rows, "int32"))

    def results(self) -> list[list[list[int]]]:
        """The new tokens of the best texts of each prompt, best first."""
        return [[tokens for _, tokens in beams.best] for beams in self._beams]

    def scores(self) -> list[list[float]]:
        """The score of each text in `results`."""
        return [[score for score, _ in beams.best] for beams in self._beams]


class Beam(NamedTuple):
    """A text that is not complete.

    Attributes:
        log_probability: float.
        tokens: list of the new tokens.
        parent: which beam of the step before it continues.
    """

    log_probability: float
    tokens: list
    parent: int


class Beams:
    """The beams of one prompt.

    Args:
        options: `BeamSearch`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: Any, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.live = [Beam(0.0, [], 0)]
        self.finished: list[tuple[float, list[int]]] = []
        self.is_done = False

    @property
    def best(self):
        """Pairs of score and tokens, best first."""
        return self.finished[: self.options.num_results]

    def extend(self, log_probs: np.ndarray) -> None:
        """Goes one token further; `log_probs` are those of the next token, `(live beams, V)`."""
        num_beams, live, finished = self.options.num_beams, [], []
        before = np.array([beam.log_probability for beam in self.live])
        for rank, (total, parent, token) in enumerate(_ranked(log_probs, before, 2 * num_beams)):
            tokens = [*self.live[parent].tokens, token]
            if not self.request.is_over(tokens):
                live.append(Beam(total, tokens, parent))
            elif rank < num_beams:
                # A text that ends must be among the best itself; those behind only fill up the live ones.
                finished.append((self.options.normalize(total, len(tokens)), tokens))
            if rank + 1 >= num_beams and (len(live) == num_beams or len(tokens) == self.request.max_new_tokens):
                break
        self.live = live
        self.finished = sorted(self.finished + finished, key=lambda each: -each[0])[:num_beams]
        self.is_done = not live or self._is_settled()

    def _is_settled(self) -> bool:
        """Whether the live beams need not be followed."""
        if len(self.finished) < self.options.num_beams:
            return False
        if self.options.early_stopping is True:
            return True
        length = len(self.live[0].tokens)
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            length = self.request.max_new_tokens
        return self.options.normalize(self.live[0].log_probability, length) <= self.finished[-1][0]


def _ranked(log_probs: np.ndarray, before: np.ndarray, count: int) -> Iterator[tuple[float, int, int]]:
    """The continuations `(total, beam, token)`, best first; looks for the `count` best first, as more are seldom needed.

    Args:
        log_probs: float32 `(beams, V)`: of the next token.
        before: float64 `(beams,)`: of what each beam has said.
    """
    taken = 0
    while taken < log_probs.size:
        # Among the best of all there are at most `count` of each beam.
        values, tokens = numpy_ops.top_k(log_probs, min(count, log_probs.shape[1]))
        totals = (values + before[:, None]).ravel()
        for place in np.argsort(-totals, kind="stable")[taken:count]:
            if totals[place] == float("-inf"):
                return
            yield float(totals[place]), int(place) // tokens.shape[1], int(tokens.flat[place])
        taken, count = count, 4 * count
