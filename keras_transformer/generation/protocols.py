"""The contracts of the decoding loop: models, samplers and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from keras_transformer.generation.arrays import ArrayFunctions
from keras_transformer.generation.decoding_request import DecodingRequest, ModelInput, ModelOutput
from keras_transformer.generation.generation_spec import GenerationSpec
from keras_transformer.utils.types import ArrayLike, Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.generator import Generator

# The source of an encoder-decoder: `(token_ids, padding_mask)`, or `(features,)`, or `(patches, patch_grid)`.
Source: TypeAlias = "tuple[ArrayLike, ...]"


class DecodingSteps(Protocol):
    """A language model in a runtime, as `loop.decode` calls it.

    Attributes:
        spec: `GenerationSpec`.
    """

    spec: GenerationSpec

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> Cache:
        """Returns an empty cache for at least `length` tokens, with the encoded source if there is one."""
        ...

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads prompts `(B, T)`, padded on the right, into an empty cache."""
        ...

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads tokens `(R, T)` after the `cache_index` `(R,)` tokens of each row."""
        ...

    def take_rows(self, cache: Cache, rows: ArrayLike) -> Cache:
        """Returns the cache with the given rows `(R,)`."""
        ...


@runtime_checkable
class CompiledLoop(DecodingSteps, Protocol):
    """`DecodingSteps` that run the whole loop themselves for requests where `is_plain` is True."""

    def generate(self, request: DecodingRequest, sampler: TokenSampler) -> list[list[list[int]]]:
        """Returns the new tokens of each result of each prompt."""
        ...


class ConversationalSteps(DecodingSteps, Protocol):
    """A decoder in a runtime, as a `Conversation` calls it."""

    def extend(self, token_ids: np.ndarray, cache: Cache, cache_index: np.ndarray) -> tuple[ModelOutput, Cache]:
        """Reads the next tokens `(1, T)` of one sequence after its first `cache_index` `(1,)`, in one call.

        The logits and hidden states are those of the last token, `(1, 1, V)` and `(1, 1, D)`.
        """
        ...

    def grow(self, cache: Cache, length: int) -> Cache:
        """Returns the cache of one sequence with slots for at least `length` tokens: the same one if it has them."""
        ...


class PagedDecodingSteps(Protocol):
    """A language model with a paged cache of blocks and states, as `engine.scheduler.Scheduler` calls it.

    Attributes:
        spec: `GenerationSpec`.
        keeps_slots, keeps_states: bool. Whether a sequence needs blocks, and whether it needs a state.
        chunk_size: int. Maximum number of tokens of a row in one call.
    """

    spec: GenerationSpec
    keeps_slots: bool
    keeps_states: bool
    chunk_size: int

    @property
    def model_version(self) -> int:
        """int: increases when a change of the model makes the cache invalid."""
        ...

    def step(
        self,
        token_ids: list[list[int]],
        tables: list[list[int]],
        cache_index: list[int],
        states: list[int] | None = None,
    ) -> np.ndarray:
        """Reads new tokens of each row and returns the logits after the last, float32 `(B, V)`."""
        ...

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copies blocks, each from source to target."""
        ...

    def copy_states(self, pairs: list[tuple[int, int]]) -> None:
        """Copies states, each from source to target."""
        ...

    def reset(self) -> None:
        """Empties all blocks and states."""
        ...

    def warm_up(self) -> None:
        """Compiles all input shapes."""
        ...


class ServedModel(Protocol):
    """A model that `Engine` serves."""

    def generator(self) -> Generator:
        """Returns the `Generator` of the model."""
        ...

    def paged_steps(self, num_blocks: int, block_size: int, **options: object) -> PagedDecodingSteps:
        """Returns the model with a paged cache."""
        ...


class Search(Protocol):
    """The state of one request while it is decoded. A search is a subclass, and declares what differs from the defaults.

    Attributes:
        emitted: list of the new tokens of each prompt that the last `advance` has added.
        lookahead: int. The number of tokens that it reads beyond the end. Default 0.
        saves_cache: bool. Whether the loop saves the cache after the prompts. Default False.
    """

    emitted: list[list[int]]
    lookahead: int = 0
    saves_cache: bool = False

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """Processes the output of the model, first for the prompts; returns the next input, or None at the end."""
        ...

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each result of each prompt, best first."""
        ...


@runtime_checkable
class ScoredSearch(Search, Protocol):
    """A search that scores its results."""

    def scores(self) -> list[list[float]]:
        """Returns the score of each sequence in `results`."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """A decoding strategy, which creates a `Search` for each request.

    A sampler is a subclass, and declares what differs from the defaults.

    Attributes:
        num_results: int. The number of sequences for each prompt. Default 1.
        has_scores: bool. Whether it makes a `ScoredSearch`. Default False.
        streams: bool. Whether tokens are final when they are emitted. Default True.
    """

    num_results: int = 1
    has_scores: bool = False
    streams: bool = True

    def check(self, steps: DecodingSteps, requests: list[DecodingRequest]) -> None:
        """Raises `GenerationError` for an unsupported model or request; by default for none."""
        return None

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        ...


@runtime_checkable
class TokenSampler(Sampler, Protocol):
    """A sampler that selects one token per step from logits, and can be compiled into a graph.

    Attributes:
        is_random: bool. Whether it needs `uniforms`.
    """

    is_random: bool

    def __call__(self, ops: ArrayFunctions, logits: Tensor, uniforms: Tensor | None) -> Tensor:
        """Returns tokens, int32 `(B,)`, from logits, float32 `(B, V)`."""
        ...

    def filter(self, ops: ArrayFunctions, logits: Tensor) -> Tensor:
        """Returns logits whose softmax is the distribution that tokens are drawn from."""
        ...


class TextDecoder(Protocol):
    """A decoder of one stream of tokens, whose text is that of all tokens together."""

    def push(self, index: int, /) -> str:
        """Returns the text that the next token completes."""
        ...

    def finish(self) -> str:
        """Returns the rest of the text."""
        ...


class TextTokenizer(Protocol):
    """A tokenizer, as generation calls it. The tokenizers of `keras_transformer.text` implement it."""

    @property
    def vocabulary_size(self) -> int:
        """int: number of tokens."""
        ...

    def encode(self, text: str, *, start: bool = False, end: bool = False) -> Any:
        """Returns token ids."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids."""
        ...

    def stream(self) -> TextDecoder:
        """Returns a decoder with `push(id)` and `finish()`."""
        ...
