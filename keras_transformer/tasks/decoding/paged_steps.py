"""Decoding steps of a Keras language model with a paged cache, for the engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_transformer.attention.cache.paged import SCRATCH_BLOCK, PagedCache
from keras_transformer.attention.cache.state_pool import SCRATCH_STATE, StatePool
from keras_transformer.backend.compilation.in_place import InPlace
from keras_transformer.generation.errors import GenerationError
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.tasks.text.language_model import LanguageModel

# To limit the number of compiled shapes, batches and block tables are padded to these fractions of their maximum sizes.
_BATCH_SHARES = (0.125, 0.25, 0.5, 0.75, 1)
_TABLE_SHARES = (0.25, 0.5, 0.75, 1)
_SHORT_CHUNK = 16


class PagedSteps:
    """The decoding steps of a language model with a cache in blocks and states.

    Implements `generation.protocols.PagedDecodingSteps`.

    Args:
        model: `LanguageModel` without an encoder.
        num_blocks: int >= 2. Number of blocks, including block 0 for padding.
        block_size: int >= 1. Tokens of a block.
        max_batch_size: int >= 1. Maximum number of rows in a call, and the number of states, without one for padding.
        chunk_size: int >= 1. Maximum number of tokens of a row in one call.
        quantize: bool. Whether blocks store keys and values as int8.

    Attributes:
        spec: `GenerationSpec`, with a `max_length` that is at most the capacity of the blocks.
        keeps_slots, keeps_states: bool. Whether a sequence needs blocks, and whether it needs a state.

    Raises:
        GenerationError: an encoder-decoder; a cache that is neither paged nor of fixed size; int8 without blocks.
    """

    def __init__(
        self,
        model: LanguageModel,
        num_blocks: int,
        block_size: int,
        max_batch_size: int,
        chunk_size: int = 64,
        quantize: bool = False,
    ) -> None:
        if model.is_encoder_decoder:
            raise GenerationError("The cache of an encoder-decoder depends on its source and cannot be paged.")
        try:
            self.pages = PagedCache.from_cache(model.init_cache, num_blocks, block_size, quantize)
            self.states = StatePool.from_cache(model.init_cache, max_batch_size + 1)
        except ValueError as error:
            raise GenerationError(str(error)) from None
        self.keeps_slots, self.keeps_states = bool(self.pages.tensors), bool(self.states.states)
        if quantize and not self.keeps_slots:
            raise GenerationError("int8 is for keys and values in blocks; this model has states only.")
        self.model = model
        max_length = _least(model.max_length, (num_blocks - 1) * block_size if self.keeps_slots else None)
        self.spec = dataclasses.replace(model.generation_spec, max_length=max_length)
        self.chunk_size = chunk_size if max_length is None else min(chunk_size, max_length)
        self._pools = InPlace(self._init_pools, model, model.jit_compile)
        self._step = self._pools.compiled(self._read_tokens, ["int32"] * 5, ranks=[2, 2, 1, 1, 1])
        self._copy = self._pools.compiled(_copying(self.pages), ["int32"] * 2)
        self._copy_states = self._pools.compiled(_copying(self.states), ["int32"] * 2)
        self._batches = sorted({1, *_shares(max_batch_size, _BATCH_SHARES)})
        most_blocks = 1 if max_length is None or not self.keeps_slots else -(-max_length // block_size)
        self._tables = _shares(most_blocks, _TABLE_SHARES)
        self._widths = sorted({1, min(_SHORT_CHUNK, self.chunk_size), self.chunk_size})

    @property
    def model_version(self) -> int:
        """int: increases when variables are added to the model or removed, which makes the cache invalid."""
        return self._pools.structure.version()

    def step(
        self,
        token_ids: list[list[int]],
        tables: list[list[int]],
        cache_index: list[int],
        states: list[int] | None = None,
    ) -> np.ndarray:
        """Reads new tokens: one of each row, or several of a single row.

        Args:
            token_ids: list of lists of int, of equal length.
            tables: list of lists of int. Block table of each row, with slots for the new tokens; empty without slots.
            cache_index: list of int. Number of tokens that each row has read before.
            states: list of int. Index of the state of each row; ignored without states.

        Returns:
            Logits after the last token of each row, float32 `(B, V)`.
        """
        states = states or [SCRATCH_STATE] * len(token_ids)
        if not self._pools.needs_fixed_shapes:
            lengths = [len(row) for row in token_ids]
            width = max(1, *map(len, tables))
            return self._step(token_ids, _filled(tables, width), states, cache_index, lengths)
        width = self._width(len(token_ids[0]), max(cache_index))
        while len(token_ids[0]) > width:  # Near the maximum length, where padding would exceed it.
            self._padded([row[:width] for row in token_ids], tables, states, cache_index, width)
            token_ids, cache_index = [row[width:] for row in token_ids], [index + width for index in cache_index]
            width = self._width(len(token_ids[0]), max(cache_index))
        return self._padded(token_ids, tables, states, cache_index, width)

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copies blocks, for copy on write.

        Args:
            pairs: list of `(source, target)`.
        """
        for source, target in pairs:
            self._copy([source], [target])

    def copy_states(self, pairs: list[tuple[int, int]]) -> None:
        """Copies states, for copy on write.

        Args:
            pairs: list of `(source, target)`.
        """
        for source, target in pairs:
            self._copy_states([source], [target])

    def reset(self) -> None:
        """Resets all blocks and states, after an error that may have corrupted them."""
        self._pools.reset()

    def warm_up(self) -> None:
        """Compiles all input shapes of `step`, `copy` and `copy_states`."""
        self._copy([SCRATCH_BLOCK], [SCRATCH_BLOCK])
        self._copy_states([SCRATCH_STATE], [SCRATCH_STATE])
        if not self._pools.needs_fixed_shapes:
            self.step([[0]], [[SCRATCH_BLOCK]], [0])
            return
        for table in self._tables:
            shapes = [(batch, 1) for batch in self._batches] + [(1, width) for width in self._widths[1:]]
            for batch, width in shapes:
                if not self.keeps_slots or width <= table * self.pages.block_size:
                    tables, zeros = [[SCRATCH_BLOCK] * table] * batch, [0] * batch
                    self._padded([[0] * width] * batch, tables, zeros, zeros, width)

    def _width(self, count: int, index: int) -> int:
        """Returns the number of tokens in a call, including padding."""
        max_length = self.spec.max_length
        fits = [width for width in self._widths if max_length is None or index + width <= max_length]
        return next((width for width in fits if width >= count), fits[-1])

    def _padded(
        self, token_ids: list[list[int]], tables: list[list[int]], states: list[int], cache_index: list[int], width: int
    ) -> np.ndarray:
        """Calls the model with inputs padded to compiled shapes."""
        batch = _at_least(self._batches, len(token_ids))
        blocks = 1
        if self.keeps_slots:
            blocks = max(max(map(len, tables)), -(-(max(cache_index) + width) // self.pages.block_size))
        padding = batch - len(token_ids)
        logits = self._step(
            _filled(token_ids + [[]] * padding, width),
            _filled(tables + [[]] * padding, _at_least(self._tables, blocks)),
            [*states, *[SCRATCH_STATE] * padding],
            [*cache_index, *[0] * padding],
            [*map(len, token_ids), *[1] * padding],
        )
        return logits[: len(token_ids)]

    def _init_pools(self) -> dict[str, Tensor]:
        return {**self.pages.init_pools(), **self.states.init_pools()}

    def _read_tokens(
        self,
        pools: dict[str, Tensor],
        take: Callable[..., Tensor],
        put: Callable[..., Tensor],
        token_ids: Tensor,
        table: Tensor,
        states: Tensor,
        cache_index: Tensor,
        lengths: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        cache = {**self.pages.read(pools, table, take), **self.states.read(pools, states, cache_index, take)}
        logits, _, cache = self.model.extend(token_ids, lengths, cache, cache_index)
        count = ops.shape(token_ids)[1]
        pools = self.pages.write(pools, cache, table, cache_index, lengths, count, put)
        return logits[:, 0], self.states.write(pools, cache, states, put)


def _copying(parts: Any) -> Callable[..., Any]:
    """Returns the step that copies blocks of a `PagedCache`, or states of a `StatePool`."""

    def copy(pools, take, put, sources, targets):
        return ops.zeros((), "int32"), parts.copy(pools, sources, targets, take, put)

    return copy


def _filled(rows: list[list[int]], width: int) -> np.ndarray:
    """Returns lists as int32 `(B, width)`, padded with 0: token 0, or the padding block."""
    filled = np.zeros((len(rows), width), "int32")
    for line, row in zip(filled, rows, strict=True):
        line[: len(row)] = row
    return filled


def _shares(most: int, shares: tuple[float, ...]) -> list[int]:
    return sorted({math.ceil(most * share) for share in shares})


def _at_least(sizes: list[int], size: int) -> int:
    return next(each for each in sizes if each >= size)


def _least(*sizes: int | None) -> int | None:
    """Returns the smallest value that is not None."""
    return min((size for size in sizes if size is not None), default=None)
