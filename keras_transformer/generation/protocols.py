"""The contracts of the decoding loop: models, samplers and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from keras_transformer.generation.decoding_request import DecodingRequest, ModelInput, ModelOutput
from keras_transformer.generation.generation_spec import GenerationSpec
from keras_transformer.utils.types import ArrayLike, Cache, Tensor

# The source of an encoder-decoder: `(token_ids, padding_mask)`, or `(features,)`.
Source: TypeAlias = "tuple[ArrayLike, ...]"


class DecodingSteps(Protocol):
    """A language model in its runtime, as `loop.decode` calls it.

    It may also have `generate(request, sampler)`, which runs the whole loop for requests where `is_plain` is True.

    Attributes:
        spec: `GenerationSpec`.
    """

    spec: GenerationSpec

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> Cache:
        """Returns an empty cache for at least `length` tokens, with the encoded source."""
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


class PagedDecodingSteps(Protocol):
    """A language model whose cache is in blocks and states, as `engine.scheduler.Scheduler` calls it.

    Attributes:
        spec: `GenerationSpec`.
        keeps_slots, keeps_states: bool. Whether a sequence needs blocks, and whether it needs a state.
        chunk_size: int. Maximum number of tokens that one call reads of a row.
    """

    spec: GenerationSpec
    keeps_slots: bool
    keeps_states: bool
    chunk_size: int

    @property
    def model_version(self) -> int:
        """int: increases when the cache is out of date because the model has changed."""
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
        """Compiles all shapes."""
        ...


class ServedModel(Protocol):
    """A model that `Engine` serves."""

    def generator(self) -> Any:
        """Returns the `Generator` of the model."""
        ...

    def paged_steps(self, num_blocks: int, block_size: int, **options: Any) -> PagedDecodingSteps:
        """Returns the model with its cache in blocks and states."""
        ...


class Search(Protocol):
    """The state of one request while it is decoded.

    A search may have `keeps`, bool: whether the loop keeps the cache after the prompts; `lookahead`, int: the number of
    tokens it reads beyond the end; and `scores()`.

    Attributes:
        emitted: for each prompt the list of tokens that the last `advance` has added.
    """

    emitted: list[list[int]]

    def advance(self, output: ModelOutput) -> ModelInput | None:
        """Takes the output of the model; returns the tokens to read next, or None at the end."""
        ...

    def results(self) -> list[list[list[int]]]:
        """Returns the new tokens of each result of each prompt, best first."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """A decoding strategy, which makes a `Search` for each request.

    It may have `check(steps, requests)`, which raises `GenerationError` for what it cannot do; `num_results`, int;
    `has_scores` and `streams`, bool.
    """

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        ...


@runtime_checkable
class TokenSampler(Sampler, Protocol):
    """A sampler that draws one token after another, and may be part of a graph.

    Attributes:
        is_random: bool. Whether it needs `uniforms`.
    """

    @property
    def is_random(self) -> bool:
        """bool: whether it needs `uniforms`."""
        ...

    def __call__(self, ops: Any, logits: Tensor, uniforms: Tensor | None = None) -> Tensor:
        """Returns tokens, int32 `(B,)`, from logits, float32 `(B, V)`."""
        ...

    def filter(self, ops: Any, logits: Tensor) -> Tensor:
        """Returns the logits of the distribution that tokens are drawn from."""
        ...


class TextTokenizer(Protocol):
    """A tokenizer, as generation calls it; those of `keras_transformer.text` are such."""

    @property
    def vocabulary_size(self) -> int:
        """int: number of tokens."""
        ...

    def encode(self, text: Any, *, start: bool = False, end: bool = False) -> Any:
        """Returns token ids."""
        ...

    def decode(self, ids: Sequence[int]) -> Any:
        """Returns the text of token ids."""
        ...

    def stream(self) -> Any:
        """Returns a decoder with `push(id)` and `finish()`."""
        ...
