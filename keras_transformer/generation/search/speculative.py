"""Speculative decoding: a draft proposes tokens, and the model reads several at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.protocols import Sampler, Search, TokenSampler
from keras_transformer.generation.samplers import resolve_sampler
from keras_transformer.generation.search.draft_model import (
    Draft,
    DraftSource,
    ModelDraft,
    check_rewindable,
    distribution,
    draw_from,
    token_window,
)

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
    from keras_transformer.generation.protocols import DecodingSteps


@dataclasses.dataclass
class Speculative(Sampler):
    """Speculative decoding: a draft model proposes tokens, and the target model accepts or rejects them in one step.

    The draft samples `num_draft_tokens` tokens x from its distribution q. The target model reads them in one step and
    accepts each with probability min(1, p(x) / q(x)). The first rejected token is replaced by a sample of max(0, p - q),
    normalized; if all are accepted, one more is sampled from p. So the tokens have the distribution p of the target model
    for any draft model, and with "greedy" they are equal to those of greedy decoding.

    Args:
        draft: the draft model: a `LanguageModel`, a `Generator`, or its `steps`, with the vocabulary of the target model. Or
            a `DraftHead`, which reads the hidden states of the target model; or a `PromptLookup`, which needs no model.
        num_draft_tokens: int >= 1. Number of proposals in each step. Default 4.
        sampler: "greedy", "random" or a `Random`, which computes p and q from logits. Default "greedy".

    Attributes:
        accepted_per_step: float or None. Mean number of accepted proposals per step and sequence in the last request; None
            before its first step. A step adds one token more.

    Returns:
        `search(request)`: the `Search` of one request.

    Raises:
        ValueError: an argument has the wrong type or range.
        GenerationError: from `generate`: the vocabularies differ; only one of the models is an encoder-decoder; the request
            exceeds the maximum length of the draft model; or the cache of a model is not rewindable.

    Notes:
        A repetition penalty changes the logits of both models. Rejected tokens stay in the caches until they are
        overwritten, so both caches must have a slot for each token, and no recurrent state.
        The target model computes logits for several tokens at once. If two tokens differ only by rounding, greedy output may
        differ from that of decoding one token at a time.

    Example:

    >>> from keras_transformer.generation import Random
    >>> class Steps:  # A minimal draft model.
    ...     decode_step = prefill = init_cache = print
    >>> Speculative(Steps(), num_draft_tokens=2, sampler=Random(top_k=10)).sampler
    Random(temperature=1.0, top_k=10, top_p=None, min_p=None)

    Reference: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, arXiv 2211.17192, algorithm 1.
    """

    draft: Any
    num_draft_tokens: int = 4
    sampler: str | Sampler = "greedy"
    _accepted: int = dataclasses.field(default=0, init=False, repr=False, compare=False)
    _steps: int = dataclasses.field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.num_draft_tokens, int) or self.num_draft_tokens < 1:
            raise ValueError(f"num_draft_tokens must be a positive integer. Received: {self.num_draft_tokens!r}")
        self.sampler = self.token_sampler
        if not isinstance(self.draft, DraftSource) and not hasattr(self.steps, "decode_step"):
            raise ValueError(
                "draft must be a LanguageModel, a Generator or its steps, a DraftHead or a PromptLookup. "
                f"Received: {self.draft!r}"
            )

    @property
    def token_sampler(self) -> TokenSampler:
        """`protocols.TokenSampler` of both models."""
        sampler = resolve_sampler(self.sampler)
        if not isinstance(sampler, TokenSampler):
            raise ValueError(f"sampler must be 'greedy', 'random' or a Random. Received: {sampler!r}")
        return sampler

    @property
    def steps(self) -> DecodingSteps:
        """`protocols.DecodingSteps` of the draft model."""
        generator = self.draft.generator() if hasattr(self.draft, "generator") else self.draft
        return getattr(generator, "steps", generator)

    @property
    def accepted_per_step(self) -> float | None:
        """float or None: mean number of accepted proposals per step and sequence in the last request."""
        return self._accepted / self._steps if self._steps else None

    def count(self, accepted: list[int]) -> None:
        """Records the number of accepted proposals of each unfinished sequence in a step."""
        self._accepted += sum(accepted)
        self._steps += len(accepted)

    def check(self, steps: DecodingSteps, requests: list[DecodingRequest]) -> None:
        """Checks that the draft model supports the requests, and resets `accepted_per_step`.

        Args:
            steps: `protocols.DecodingSteps` of the target model.
            requests: list of `DecodingRequest`.

        Raises:
            GenerationError: the draft model is unsupported; see the class.
        """
        self._accepted = self._steps = 0
        check_rewindable("model", steps.spec)
        self._source.check(steps.spec, requests)

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        return SpeculativeSearch(self, request)

    @property
    def _source(self) -> DraftSource:
        return self.draft if isinstance(self.draft, DraftSource) else ModelDraft(self.steps)

    def draft_of(self, request: DecodingRequest) -> Draft:
        """Returns what proposes tokens for one request."""
        return self._source.of_request(request, self.token_sampler)


class SpeculativeSearch(Search):
    """The decoding state of one request. Implements `protocols.Search`.

    In each step the target model reads the last token and the proposals of each row. All rows read the same number of
    tokens. Near its maximum length a row has fewer proposals, and reads earlier tokens again, so that no index exceeds the
    maximum.

    Args:
        options: `Speculative`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: Speculative, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._finished = np.zeros(len(request.prompts), bool)
        self._sampler = options.token_sampler
        self._generators = [np.random.default_rng(seed) for seed in request.seeds]
        # Every step adds a token after the proposals, so more of them are never used.
        self._max_proposals = max(0, min(options.num_draft_tokens, request.max_new_tokens - 2))
        self._draft = options.draft_of(request) if self._max_proposals else None
        # Proposals (B, G) and their distributions (B, G, V), the number of valid proposals of each row, and the index of
        # the token before the proposals in the model input.
        self._proposals = np.zeros((len(request.prompts), 0), "int32")
        self._draft_probabilities: np.ndarray | None = None
        self._has_read_prompts = self._has_proposed = False
        self._counts = self._offsets = np.zeros(len(request.prompts), int)

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `protocols.Search`."""
        logits = self._target_logits(np.asarray(output.logits))
        accepted, last = self._drawn(logits) if self._sampler.is_random else self._most_likely(logits)
        if self._has_proposed:
            self.options.count(accepted[~self._finished].tolist())
        if self._draft is not None and self._draft.reads_states:
            self._draft.observe(self._hidden_states(output, accepted), logits.shape[-1])
        self._append(accepted, last)
        self._has_read_prompts = True
        return None if self._finished.all() else self._propose()

    def _hidden_states(self, output: ModelOutput, accepted: np.ndarray) -> np.ndarray:
        """Returns the hidden state `(B, D)` from which the token after the accepted proposals of each row was chosen."""
        states = np.asarray(output.hidden_states)
        # Of prompts the output may have the states of all tokens, but the logits after the last alone.
        indices = self._offsets + accepted if self._has_read_prompts else self.request.lengths - 1
        return states[np.arange(len(states)), np.minimum(indices, states.shape[1] - 1)]

    def _most_likely(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the number of accepted proposals of each row and the token after them, without distributions."""
        best = logits.argmax(axis=-1).astype("int32")
        accepted = self._leading(self._proposals == best[:, :-1])
        return accepted, best[np.arange(len(best)), accepted]

    def _drawn(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the same by sampling."""
        probabilities = distribution(logits.reshape(-1, logits.shape[-1]), self._sampler).reshape(logits.shape)
        accepted = self._num_accepted(probabilities)
        return accepted, draw_from(self._residual(probabilities, accepted), self._uniforms(1)[:, 0])

    def _leading(self, accepted: np.ndarray) -> np.ndarray:
        """Returns how many proposals `(B, G)` are accepted before the first that is not."""
        accepted = accepted & (np.arange(accepted.shape[1]) < self._counts[:, None])
        return np.cumprod(accepted, axis=1, dtype=int).sum(axis=1)

    def _uniforms(self, count: int) -> np.ndarray:
        return np.array([generator.random(count) for generator in self._generators])

    def _target_logits(self, logits: np.ndarray) -> np.ndarray:
        """Returns the target's logits of each proposal and of the token after them, `(B, G + 1, V)`."""
        indices = self._offsets[:, None] + np.arange(self._proposals.shape[1] + 1)
        if self._offsets.any() or indices.shape[1] != logits.shape[1]:
            logits = np.take_along_axis(logits, np.minimum(indices, logits.shape[1] - 1)[:, :, None], axis=1)
        rows = (
            (row, [*tokens, *proposals[:count]])
            for row, (tokens, proposals) in enumerate(zip(self.tokens, self._proposals.tolist(), strict=True))
            for count in range(len(proposals) + 1)
        )
        flat = logits.reshape(-1, logits.shape[-1])
        return self.request.process_logits(flat, rows).reshape(logits.shape)

    def _num_accepted(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns the number of accepted proposals of each row, `(B,)`."""
        # As many numbers for each row, whatever was proposed to the others.
        uniforms = self._uniforms(self._max_proposals if self._has_proposed else 0)
        if not self._proposals.size:
            return np.zeros(len(self.tokens), int)
        proposals = self._proposals[:, :, None]
        target = np.take_along_axis(probabilities[:, :-1], proposals, axis=2)[:, :, 0]
        draft: np.ndarray | float = 1.0
        if self._draft_probabilities is not None:
            draft = np.take_along_axis(self._draft_probabilities, proposals, axis=2)[:, :, 0]
        return self._leading(uniforms[:, : self._proposals.shape[1]] * draft < target)

    def _residual(self, probabilities: np.ndarray, accepted: np.ndarray) -> np.ndarray:
        """Returns the unnormalized distribution of the token after the accepted proposals, `(B, V)`."""
        rows = np.arange(len(accepted))
        target = probabilities[rows, accepted]
        rejected = accepted < self._counts
        if not rejected.any():
            return target
        first = np.minimum(accepted, self._proposals.shape[1] - 1)
        if self._draft_probabilities is None:
            residual = target.copy()
            residual[rows, self._proposals[rows, first]] = 0.0
        else:
            residual = np.maximum(target - self._draft_probabilities[rows, first], 0)
        # The residual is zero if both distributions are equal up to rounding.
        return np.where((rejected & (residual.sum(axis=1) > 0))[:, None], residual, target)

    def _append(self, accepted: np.ndarray, last: np.ndarray) -> None:
        self.emitted = [[] for _ in self.tokens]
        for row in np.flatnonzero(~self._finished):
            for token in [*self._proposals[row, : accepted[row]], last[row]]:
                self.emitted[row].append(int(token))
                self.tokens[row].append(int(token))
                self._finished[row] = self.request.is_finished(self.tokens[row])
                if self._finished[row]:
                    break

    def _propose(self) -> ModelInput:
        remaining = self.request.max_new_tokens - np.array([len(tokens) for tokens in self.tokens])
        self._counts = np.clip(remaining - 1, 0, self._max_proposals)
        sequences = list(self._sequences())
        if self._draft is not None:
            uniforms = self._uniforms(self._max_proposals)
            self._proposals, self._draft_probabilities, found = self._draft.propose(
                sequences, self._max_proposals, uniforms
            )
            self._counts, self._has_proposed = np.minimum(self._counts, found), True
        count = self._proposals.shape[1]
        lengths = np.array([len(sequence) for sequence in sequences])
        extended = [[*each, *more] for each, more in zip(sequences, self._proposals.tolist(), strict=True)]
        token_ids, index = token_window(extended, lengths - 1, count + 1, self.request)
        self._offsets = np.maximum(lengths - 1 - index, 0)
        return ModelInput(token_ids, index)

    def _sequences(self) -> Iterator[list[int]]:
        """Yields the tokens of each row, prompt included."""
        return ([*map(int, prompt), *tokens] for prompt, tokens in zip(self.request.prompts, self.tokens, strict=True))

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each prompt, as a list of one sequence."""
        return [[tokens] for tokens in self.tokens]
