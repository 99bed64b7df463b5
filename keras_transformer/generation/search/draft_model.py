"""The draft model of speculative decoding, and the sampling distributions of draft and target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.errors import GenerationError, PromptTooLongError
from keras_transformer.generation.loop import cache_length, pad
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.generation_spec import GenerationSpec
    from keras_transformer.generation.protocols import DecodingSteps, TokenSampler


class Proposals(NamedTuple):
    """Tokens that may follow each text.

    Attributes:
        tokens: int32 `(B, G)`.
        probabilities: float `(B, G, V)`: the distributions that they were sampled from; None for tokens that are certain.
        counts: int `(B,)`: how many tokens of each row count.
    """

    tokens: np.ndarray
    probabilities: np.ndarray | None
    counts: np.ndarray


class Draft(Protocol):
    """What proposes tokens for one request. A draft is a subclass, and declares what differs from the default.

    Attributes:
        reads_states: bool. Whether it reads the hidden states of the model, in `observe`. Default False.
    """

    reads_states: bool = False

    def propose(self, sequences: Sequence[Sequence[int]], count: int, uniforms: Tensor) -> Proposals:
        """Proposes up to `count` tokens after each sequence."""
        ...

    def observe(self, hidden_states: np.ndarray, vocabulary_size: int) -> None:
        """Receives the hidden states `(B, D)` that the last tokens were chosen from, before each `propose`."""
        return None


@runtime_checkable
class DraftSource(Protocol):
    """What makes the draft of each request."""

    def check(self, target: GenerationSpec, requests: list[DecodingRequest]) -> None:
        """Raises `GenerationError` for an unsupported model or request."""
        ...

    def of_request(self, request: DecodingRequest, sampler: TokenSampler) -> Draft:
        """Returns the draft of one request."""
        ...


@dataclasses.dataclass(frozen=True)
class ModelDraft:
    """A draft model for `Speculative`, by its steps.

    Args:
        steps: `protocols.DecodingSteps`.
    """

    steps: DecodingSteps

    def check(self, target: GenerationSpec, requests: list[DecodingRequest]) -> None:
        """Checks that the draft model supports the requests of a target model.

        Raises:
            GenerationError: the vocabularies differ; only one of the models is an encoder-decoder; the cache is not
                rewindable; a request exceeds the maximum length of the draft model.
        """
        draft = self.steps.spec
        if draft.vocabulary_size != target.vocabulary_size:
            raise GenerationError(
                f"The draft has a vocabulary of {draft.vocabulary_size} tokens, the model one of {target.vocabulary_size}."
            )
        if draft.is_encoder_decoder != target.is_encoder_decoder:
            raise GenerationError("The draft and the model must both be encoder-decoders, or neither.")
        check_rewindable("draft", draft)
        if draft.max_length is None:
            return
        for request in requests:
            sources = request.source[0].shape[1] if request.source and draft.source_shape is None else 0
            longest = max(int(request.lengths.max()) + request.max_new_tokens, sources)
            if longest > draft.max_length:
                raise PromptTooLongError(
                    f"The request has {longest} tokens; the maximum length of the draft is {draft.max_length}."
                )

    def of_request(self, request: DecodingRequest, sampler: TokenSampler) -> DraftModel:
        """The draft of one request."""
        return DraftModel(self.steps, sampler, request)


def check_rewindable(name: str, spec: GenerationSpec) -> None:
    """Raises `GenerationError` for a model whose cache cannot go back."""
    if not spec.cache_is_rewindable:
        raise GenerationError(
            f"The cache of the {name} is of fixed size and cannot go back to discard rejected proposals."
        )


class DraftedTexts:
    """Texts to which a draft adds one token after another.

    Args:
        sequences: lists of token ids, prompts included.
        sampler: `protocols.TokenSampler`.
        request: `DecodingRequest`.

    Attributes:
        texts: list of lists of int: the sequences and what was added.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], sampler: TokenSampler, request: DecodingRequest) -> None:
        self.texts = [list(each) for each in sequences]
        self._sampler, self._request = sampler, request
        self._tokens: list[np.ndarray] = []
        self._probabilities: list[np.ndarray] = []

    def add(self, logits: np.ndarray, uniforms: Tensor) -> None:
        """Samples a token of each text from logits `(B, V)`."""
        logits = self._request.process_logits(logits, self._rows())
        if self._sampler.is_random:
            self._probabilities.append(distribution(logits, self._sampler))
            self._tokens.append(draw_from(self._probabilities[-1], uniforms))
        else:
            self._tokens.append(logits.argmax(axis=-1).astype("int32"))
        for text, token in zip(self.texts, self._tokens[-1].tolist(), strict=True):
            text.append(token)

    def proposals(self) -> Proposals:
        """Returns what was added."""
        probabilities = np.stack(self._probabilities, axis=1) if self._probabilities else None
        return Proposals(np.stack(self._tokens, axis=1), probabilities, np.full(len(self.texts), len(self._tokens)))

    def _rows(self) -> Iterator[tuple[int, list[int]]]:
        """Yields the prompt and the new tokens of each row."""
        for row, (text, length) in enumerate(zip(self.texts, self._request.lengths.tolist(), strict=True)):
            yield row, text[length:]


class DraftModel(Draft):
    """A draft model with its cache, which proposes the next tokens.

    Before every proposal its cache goes back to the last two accepted tokens and reads them again, as it may not have read
    them. Later cache slots are overwritten.

    Args:
        steps: `protocols.DecodingSteps` of the draft model.
        sampler: `protocols.TokenSampler`.
        request: `DecodingRequest`.
    """

    def __init__(self, steps: DecodingSteps, sampler: TokenSampler, request: DecodingRequest) -> None:
        self.steps = steps
        self.sampler = sampler
        self.request = request
        self._cache: Cache = {}

    def propose(self, sequences: Sequence[Sequence[int]], count: int, uniforms: Tensor) -> Proposals:
        """Samples `count` tokens after each sequence.

        Args:
            sequences: list of lists of token ids. The prompts and at least one new token.
            count: int >= 1. G.
            uniforms: float `(B, G)` in [0, 1).

        Returns:
            `Proposals`.
        """
        if not self._cache:
            self._read_prompts()
        drafted = DraftedTexts(sequences, self.sampler, self.request)
        token_ids, index = token_window(drafted.texts, [len(each) - 2 for each in drafted.texts], 2, self.request)
        for step in range(count):
            output, self._cache = self.steps.decode_step(token_ids, self._cache, index)
            drafted.add(np.asarray(output.logits)[:, -1], uniforms[:, step])
            # Near the maximum length of a row the index stays at the last slot; later proposals are ignored.
            token_ids, index = token_window(drafted.texts, [len(each) - 1 for each in drafted.texts], 1, self.request)
        return drafted.proposals()

    def _read_prompts(self) -> None:
        token_ids = pad(self.request.prompts)
        cache = self.steps.init_cache(len(token_ids), cache_length(self.request), self.request.source)
        _, self._cache = self.steps.prefill(token_ids, self.request.lengths, cache)


def token_window(
    sequences: Sequence[Sequence[int]], starts: Sequence[int] | np.ndarray, size: int, request: DecodingRequest
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `size` tokens of each sequence from `starts`, or from earlier so as not to exceed the maximum length.

    Returns:
        Token ids, int32 `(B, size)`, and the index of the first token of each row, int32 `(B,)`.
    """
    # The model never reads the last new token.
    ends = request.lengths + request.max_new_tokens - 1
    index = np.minimum(starts, ends - size)
    rows = [each[start : start + size] for each, start in zip(sequences, index.tolist(), strict=True)]
    return pad([*rows, [0] * size])[:-1], index.astype("int32")


def distribution(logits: Tensor, sampler: TokenSampler) -> np.ndarray:
    """Returns the distribution that the sampler draws from, float `(R, V)`."""
    return numpy_ops.softmax(sampler.filter(numpy_ops, logits))


def draw_from(probabilities: np.ndarray, uniforms: Tensor) -> np.ndarray:
    """Samples a token for each row by inversion, int32 `(R,)`; the probabilities need not sum to 1."""
    sums = np.cumsum(probabilities, axis=-1, dtype="float64")
    total = sums[:, -1]
    # Strictly below the total despite rounding, so that a last token with probability 0 is never drawn.
    threshold = np.minimum(uniforms * total, np.nextafter(total, 0))
    return (sums <= threshold[:, None]).sum(axis=-1).astype("int32")
