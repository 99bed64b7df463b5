"""Contrastive search."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.protocols import Sampler, Search
from keras_transformer.utils.types import ArrayLike, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
    from keras_transformer.generation.protocols import DecodingSteps


@dataclasses.dataclass(frozen=True)
class Contrastive(Sampler):
    """Contrastive search: selects a likely token whose hidden state differs from those of the previous tokens.

    x_t = argmax over v of (1 - alpha) p(v | x_<t) - alpha max_j s(h_v, h_x_j), where v runs over the `top_k` most likely
    tokens, j over all tokens before t, including the prompt, and s is the cosine similarity of hidden states.

    Args:
        top_k: int >= 1. Number of candidates. Default 4; 1 is greedy decoding.
        alpha: float in [0, 1]. Weight of the degeneration penalty. Default 0.6; 0 is greedy decoding.

    Returns:
        `search(request)`: the `Search` of one request.

    Raises:
        ValueError: an argument is out of range.

    Notes:
        p is the softmax over the whole vocabulary, after the repetition penalty. The model reads `top_k` rows for each
        prompt, and the last token too, because the hidden state of a candidate is known only after it has been read. Ties
        are resolved by probability. It needs `ModelOutput.hidden_states` of the whole prompt, which a model with a
        `models.PrefillExit` does not compute.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation.decoding_request import ModelOutput, DecodingRequest
    >>> search = Contrastive(top_k=2, alpha=0.5).search(DecodingRequest([np.array([0])], max_new_tokens=1, seeds=[None]))
    >>> model_input = search.advance(ModelOutput(np.log([[[0.1, 0.5, 0.4]]]), hidden_states=np.array([[[1.0, 0.0]]])))
    >>> model_input.token_ids.tolist()
    [[1], [2]]
    >>> search.advance(ModelOutput(np.zeros((2, 1, 3)), hidden_states=np.array([[[1.0, 0.1]], [[0.0, 1.0]]])))
    >>> search.results()
    [[[2]]]

    Reference: Su et al., A Contrastive Framework for Neural Text Generation, arXiv 2202.06417, equation 5.
    """

    top_k: int = 4
    alpha: float = 0.6

    def __post_init__(self) -> None:
        if not isinstance(self.top_k, int) or self.top_k < 1:
            raise ValueError(f"top_k must be a positive integer. Received: {self.top_k!r}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must be in [0, 1]. Received: {self.alpha}")

    def check(self, steps: DecodingSteps, requests: list[DecodingRequest]) -> None:
        """Raises `GenerationError` for a model that does not compute the hidden states of the whole prompt."""
        if steps.spec.has_prefill_exit:
            raise GenerationError(
                "Contrastive search needs the hidden states of all prompt tokens; the prefill of this model exits half-way "
                "for all but the last token."
            )

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        return ContrastiveSearch(self, request)


class ContrastiveSearch(Search):
    """The decoding state of one request. In each step the model reads all candidates, and one is selected.

    Args:
        options: `Contrastive`.
        request: `DecodingRequest`.
    """

    # The model also reads the last token.
    lookahead = 1

    def __init__(self, options: Contrastive, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._finished = np.zeros(len(request.prompts), bool)
        # Normalized hidden states of the tokens of each row, (B, maximum length, D), padded with zeros.
        self._context = np.zeros((0, 0, 0), "float32")
        # Tokens (B, k) and probabilities (B, k) of the current candidates.
        self._candidates: np.ndarray | None = None
        self._probabilities = np.zeros((0, 0), "float32")

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `protocols.Search`."""
        logits, hidden_states = np.asarray(output.logits)[:, -1], _normalized(output.hidden_states)
        rows = np.arange(len(self.tokens))
        if self._candidates is None:
            self._begin(hidden_states)
        else:
            width = self._candidates.shape[1]
            hidden_states = hidden_states[:, -1].reshape(len(rows), width, -1)
            chosen = self._choose(hidden_states)
            self._append(self._candidates[rows, chosen], hidden_states[rows, chosen])
            rows = rows * width + chosen
            logits = logits[rows]
        if self._finished.all():
            return None
        return self._propose(logits, rows)

    def _begin(self, hidden_states: np.ndarray) -> None:
        lengths = self.request.lengths
        self._context = np.zeros(
            (len(lengths), lengths.max() + self.request.max_new_tokens, hidden_states.shape[-1]), "float32"
        )
        for context, states, length in zip(self._context, hidden_states, lengths, strict=True):
            context[:length] = states[:length]

    def _choose(self, hidden_states: Tensor) -> np.ndarray:
        """Returns the index of the selected candidate of each row, `(B,)`."""
        lengths = self._lengths()
        cosines = hidden_states @ self._context[:, : lengths.max()].swapaxes(1, 2)
        padding = np.arange(cosines.shape[-1]) >= lengths[:, None]
        penalties = np.where(padding[:, None], -np.inf, cosines).max(axis=-1)
        alpha = self.options.alpha
        scores = (1 - alpha) * self._probabilities - alpha * penalties
        if self.request.constraint is not None:
            # Fewer tokens than candidates may be allowed.
            scores = np.where(self._probabilities > 0, scores, -np.inf)
        return np.argmax(scores, axis=1)

    def _append(self, chosen: np.ndarray, hidden_states: Tensor) -> None:
        self.emitted = [[] for _ in self.tokens]
        positions = self._lengths()
        for row in np.flatnonzero(~self._finished):
            token = int(chosen[row])
            self.emitted[row] = [token]
            self.tokens[row].append(token)
            self._context[row, positions[row]] = hidden_states[row]
            self._finished[row] = self.request.is_finished(self.tokens[row])

    def _propose(self, logits: Tensor, rows: ArrayLike) -> ModelInput:
        """Returns the input of the candidates, each of which continues the cache row of its prompt."""
        unfinished = ((row, None if over else self.tokens[row]) for row, over in enumerate(self._finished))
        logits = self.request.process_logits(logits, unfinished)
        width = min(self.options.top_k, logits.shape[-1])
        self._probabilities, self._candidates = numpy_ops.top_k(numpy_ops.softmax(logits), width)
        # A finished row stays at the index after its last token; its output is ignored.
        return ModelInput(
            self._candidates.reshape(-1, 1).astype("int32"),
            np.repeat(self._lengths(), width).astype("int32"),
            np.repeat(rows, width).astype("int32"),
        )

    def _lengths(self) -> np.ndarray:
        """Returns the number of tokens of each row, `(B,)`."""
        return self.request.lengths + np.array([len(tokens) for tokens in self.tokens], "int32")

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each prompt, as a list of one sequence."""
        return [[tokens] for tokens in self.tokens]


def _normalized(hidden_states: Tensor) -> np.ndarray:
    hidden_states = np.asarray(hidden_states).astype("float32")
    norms = np.linalg.norm(hidden_states, axis=-1, keepdims=True)
    return hidden_states / np.maximum(norms, np.finfo("float32").tiny)
