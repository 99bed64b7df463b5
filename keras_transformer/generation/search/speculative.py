"""Speculative decoding: a small model guesses, the large one reads all guesses at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.errors import GenerationError, PromptTooLongError
from keras_transformer.generation.sampler_names import resolve_sampler
from keras_transformer.generation.search.draft import Draft, distribution, draw_from, window
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
    from keras_transformer.generation.protocols import DecodingSteps, Search


@dataclasses.dataclass
class Speculative:
    """Tokens of the target model, several for each of its steps, as far as a draft model guesses them.

    The draft draws `num_draft_tokens` tokens x from its distribution q. The target reads them in one step, and keeps each
    with probability min(1, p(x) / q(x)); in place of the first that is not kept comes one drawn from max(0, p - q), and
    after all of them one from p. So the tokens have the target's distribution p whatever the draft is, and with "greedy"
    they are the target's own.

    Args:
        draft: the draft model: a `LanguageModel`, a `Generator`, or its `steps`. Its vocabulary is the target's.
        num_draft_tokens: int >= 1. Default 4.
        sampler: "greedy", "random" or a `Random`: what makes p and q of logits. Default "greedy".

    Attributes:
        accepted_per_step: float: of the last request, the draft tokens that were kept per step of the target and text; None
            before there was a step. A step gives one token more than that.

    Returns:
        `search(request)`: the course of one request.

    Raises:
        ValueError: an argument is out of its range, or not of its kind.
        GenerationError: from `generate`: the draft has another vocabulary, is an encoder-decoder where the target is none
            (or the reverse), or cannot hold the text; the cache of one of them cannot go back.

    Notes:
        A repetition penalty changes both models' logits. Tokens that are not kept stay in the caches until others are
        written over them: this wants caches in which a token has a place of its own, and no recurrent state.
        The target's logits come from steps of several tokens; where two tokens are equal but for rounding, greedy output
        may differ from that of one token at a time.

    Example:

    >>> from keras_transformer.generation import Random
    >>> class Steps:  # What a model would be.
    ...     decode_step = prefill = init_cache = print
    >>> Speculative(Steps(), num_draft_tokens=2, sampler=Random(top_k=10)).sampler
    Random(temperature=1.0, top_k=10, top_p=None, min_p=None)

    Reference: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, arXiv 2211.17192, algorithm 1.
    """

    draft: Any
    num_draft_tokens: int = 4
    sampler: Any = "greedy"
    _accepted: int = dataclasses.field(default=0, init=False, repr=False, compare=False)
    _steps: int = dataclasses.field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.num_draft_tokens, int) or self.num_draft_tokens < 1:
            raise ValueError(f"num_draft_tokens must be a positive integer. Received: {self.num_draft_tokens!r}")
        self.sampler = resolve_sampler(self.sampler)
        if not hasattr(self.sampler, "filter"):
            raise ValueError(f"sampler must be 'greedy', 'random' or a Random. Received: {self.sampler!r}")
        if not hasattr(self.steps, "decode_step"):
            raise ValueError(f"draft must be a LanguageModel, a Generator or its steps. Received: {self.draft!r}")

    @property
    def steps(self) -> DecodingSteps:
        """The draft model, as `loop.decode` wants a model."""
        generator = self.draft.generator() if hasattr(self.draft, "generator") else self.draft
        return getattr(generator, "steps", generator)

    @property
    def accepted_per_step(self) -> float | None:
        """See the class."""
        return self._accepted / self._steps if self._steps else None

    def count(self, accepted: list[int]) -> None:
        """Notes how many guesses a step kept, in each text that goes on."""
        self._accepted += sum(accepted)
        self._steps += len(accepted)

    def check(self, steps: DecodingSteps, requests: list[DecodingRequest]) -> None:
        """Begins a request: refuses a draft that cannot serve it.

        Args:
            steps: the target.
            requests: list of `DecodingRequest`.

        Raises:
            GenerationError: see the class.
        """
        self._accepted = self._steps = 0
        draft, target = self.steps.spec, steps.spec
        if draft.vocabulary_size != target.vocabulary_size:
            raise GenerationError(
                f"The draft has a vocabulary of {draft.vocabulary_size} tokens, the model one of {target.vocabulary_size}."
            )
        if draft.is_encoder_decoder != target.is_encoder_decoder:
            raise GenerationError("The draft and the model must both be encoder-decoders, or neither.")
        for name, spec in (("model", target), ("draft", draft)):
            if not spec.cache_is_rewindable:
                raise GenerationError(
                    f"The cache of the {name} is of fixed size, and cannot go back to before a guess that was refused."
                )
        if draft.max_length is None:
            return
        for request in requests:
            sources = request.source[0].shape[1] if request.source and draft.source_shape is None else 0
            longest = max(int(request.lengths.max()) + request.max_new_tokens, sources)
            if longest > draft.max_length:
                raise PromptTooLongError(f"The draft can hold {draft.max_length} tokens; {longest} are asked for.")

    def search(self, request: DecodingRequest) -> Search:
        """The course of one request."""
        return SpeculativeSearch(self, request)


class SpeculativeSearch:
    """The course of one request.

    Every step the target reads, in each row, the last token and the guesses after it. All rows read as many; near its end
    a row has fewer guesses, and reads tokens before the last again, so that none stands where the model has no place.

    Args:
        options: `Speculative`.
        request: `DecodingRequest`.
    """

    def __init__(self, options: Any, request: DecodingRequest) -> None:
        self.options = options
        self.request = request
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.emitted: list[list[int]] = [[] for _ in request.prompts]
        self._finished = np.zeros(len(request.prompts), bool)
        self._generators = [np.random.default_rng(seed) for seed in request.seeds]
        # The last token is drawn after the guesses, so that more of them would be of no use.
        self._most = max(0, min(options.num_draft_tokens, request.max_new_tokens - 2))
        self._draft = Draft(options.steps, options.sampler, request) if self._most else None
        # What the target is reading: guesses (B, G) and their distributions (B, G, V), how many of them count in each row,
        # and where in the model_input the last token before them stands.
        self._guesses = np.zeros((len(request.prompts), 0), "int32")
        self._draft_probabilities: np.ndarray | None = None
        self._counts = self._offsets = np.zeros(len(request.prompts), int)

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """See `TokenSearch`."""
        probabilities = self._target_probabilities(np.asarray(output.logits))
        kept = self._keep(probabilities)
        last = draw_from(self._remainder(probabilities, kept), self._uniforms(1)[:, 0])
        if self._draft_probabilities is not None:
            self.options.count(kept[~self._finished].tolist())
        self._append(kept, last)
        return None if self._finished.all() else self._propose()

    def _uniforms(self, count: int):
        return np.array([generator.random(count) for generator in self._generators])

    def _target_probabilities(self, logits: Tensor):
        """The target's distributions of each guess and of the token after them, `(B, G + 1, V)`."""
        places = self._offsets[:, None] + np.arange(self._guesses.shape[1] + 1)
        logits = np.take_along_axis(logits, np.minimum(places, logits.shape[1] - 1)[:, :, None], axis=1)
        texts = (
            [*text, *guesses[:count]]
            for text, guesses in zip(self._texts(), self._guesses, strict=True)
            for count in range(len(guesses) + 1)
        )
        flat = logits.reshape(-1, logits.shape[-1])
        return distribution(flat, texts, self.options.sampler, self.request.repetition_penalty).reshape(logits.shape)

    def _keep(self, probabilities: np.ndarray):
        """How many guesses of each row are kept, `(B,)`."""
        if self._draft_probabilities is None or not self._guesses.size:
            return np.zeros(len(self.tokens), int)
        chosen = self._guesses[:, :, None]
        target = np.take_along_axis(probabilities[:, :-1], chosen, axis=2)[:, :, 0]
        draft = np.take_along_axis(self._draft_probabilities, chosen, axis=2)[:, :, 0]
        kept = self._uniforms(self._guesses.shape[1]) * draft < target
        kept &= np.arange(kept.shape[1]) < self._counts[:, None]
        return np.cumprod(kept, axis=1).sum(axis=1)

    def _remainder(self, probabilities: np.ndarray, kept: np.ndarray):
        """The distribution of the token after those kept, `(B, V)`, up to a factor."""
        rows = np.arange(len(kept))
        target = probabilities[rows, kept]
        rejected = kept < self._counts
        if self._draft_probabilities is None or not rejected.any():
            return target
        draft = self._draft_probabilities[rows, np.minimum(kept, self._guesses.shape[1] - 1)]
        rest = np.maximum(target - draft, 0)
        # Nothing is left where both are the same but for rounding.
        return np.where((rejected & (rest.sum(axis=1) > 0))[:, None], rest, target)

    def _append(self, kept: np.ndarray, last) -> None:
        self.emitted = [[] for _ in self.tokens]
        for row in np.flatnonzero(~self._finished):
            for token in [*self._guesses[row, : kept[row]], last[row]]:
                self.emitted[row].append(int(token))
                self.tokens[row].append(int(token))
                self._finished[row] = self.request.is_over(self.tokens[row])
                if self._finished[row]:
                    break

    def _propose(self):
        remaining = self.request.max_new_tokens - np.array([len(tokens) for tokens in self.tokens])
        self._counts = np.clip(remaining - 1, 0, self._most)
        texts = list(self._texts())
        if self._draft is not None:
            self._guesses, self._draft_probabilities = self._draft.guess(texts, self._most, self._uniforms(self._most))
        lengths = np.array([len(text) for text in texts])
        token_ids, index = window(
            [[*text, *guesses] for text, guesses in zip(texts, self._guesses.tolist(), strict=True)],
            lengths - 1,
            self._most + 1,
            self.request,
        )
        self._offsets = np.maximum(lengths - 1 - index, 0)
        return ModelInput(token_ids, index)

    def _texts(self) -> Any:
        return ([*map(int, prompt), *tokens] for prompt, tokens in zip(self.request.prompts, self.tokens, strict=True))

    def results(self) -> list[list[list[int]]]:
        """The new tokens of each row, as a list of lists with one text in each."""
        return [[tokens] for tokens in self.tokens]
