"""Paged decoding steps in a runtime, for `generation.Engine`: the cache is in pools of blocks and of states."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_transformer.export.loading.fixed_steps import FixedSteps
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.loop import pad


class PagedRuntimeSteps:
    """Steps of many sequences at once. Pools are numpy arrays, from which a step gathers the blocks and states of its rows.

    Args:
        steps: `RuntimeSteps`, the model in its runtime.
        num_blocks: int >= 2. Block 0 is for padding.
        block_size: int >= 1. Tokens of a block.
        max_batch_size: int >= 1. The number of states, without the one that is reserved.
        chunk_size: int >= 1. The most tokens that a call of one row reads.
        quantize: bool. Not supported: must be False.

    Raises:
        GenerationError: an encoder-decoder, a bundle of fixed shapes, `quantize`, or a cache neither of all tokens nor of
            fixed size.
    """

    # The weights of a bundle never change.
    model_version = 0

    def __init__(
        self,
        steps: RuntimeSteps,
        num_blocks: int,
        block_size: int,
        max_batch_size: int,
        chunk_size: int = 64,
        quantize: bool | None = False,
    ) -> None:
        if steps.spec.is_encoder_decoder:
            raise GenerationError("The cache of an encoder-decoder depends on its source and cannot be paged.")
        if isinstance(steps, FixedSteps):
            raise GenerationError("A bundle of fixed shapes reads one row at a time: its cache cannot be paged.")
        if quantize:
            raise GenerationError("Blocks of int8 are for models of Keras: serve the .keras file.")
        self.runtime = steps
        self.block_size = block_size
        self._blocks, self._states = _pools(steps, num_blocks, block_size, max_batch_size + 1)
        self._gather = BlockGathering(self._blocks)
        self.keeps_slots, self.keeps_states = bool(self._blocks), bool(self._states)
        limits = [steps.spec.max_length, (num_blocks - 1) * block_size if self._blocks else None]
        max_length = min((limit for limit in limits if limit is not None), default=None)
        self.spec = dataclasses.replace(steps.spec, max_length=max_length)
        self.chunk_size = chunk_size if max_length is None else min(chunk_size, max_length)

    def step(
        self,
        token_ids: Sequence[Sequence[int]],
        tables: Sequence[Sequence[int]],
        cache_index: Sequence[int],
        states: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Reads tokens of each row; returns the logits after the last. See `tasks.paged_steps.PagedSteps.step`."""
        # As many blocks as the longest row needs; the causal mask hides slots behind the end of a row.
        count, longest = len(token_ids[0]), max(cache_index) + len(token_ids[0])
        table = pad([row[: -(-longest // self.block_size)] for row in tables])
        index = np.array(cache_index, "int32")
        arrays = self._gather(table)
        arrays |= {name: _begun(pool[states], index) for name, pool in self._states.items()}
        output, cache = self.runtime.decode_step(np.array(token_ids, "int32"), self.runtime.make_cache(arrays), index)
        slots, rows = index[:, None] + np.arange(count), np.arange(len(index))[:, None]  # (B, T)
        for name, pool in self._blocks.items():
            blocks = table[rows, slots // self.block_size]
            pool[blocks, :, slots % self.block_size] = self.runtime.as_numpy(cache[name])[rows, :, slots]
        for name, pool in self._states.items():
            pool[states] = self.runtime.as_numpy(cache[name])
        return output.logits[:, -1]

    def copy(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copies blocks, for copy on write."""
        _copy(self._blocks, pairs)

    def copy_states(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copies states, for copy on write."""
        _copy(self._states, pairs)

    def reset(self) -> None:
        """Does nothing: an interrupted step leaves nothing that is read later."""

    def warm_up(self) -> None:
        """Runs both shapes of a step once."""
        for count in {1, self.chunk_size}:
            blocks = -(-count // self.block_size)
            self.step([[0] * count], [[0] * blocks], [0], [0])


class BlockGathering:
    """Gathers blocks into buffers that are kept: pages of new ones would cost as much time as the copy.

    Args:
        pools: dict of name to array `(num_blocks, K, block_size, W)`, in the order of C.
    """

    def __init__(self, pools: Mapping[str, np.ndarray]) -> None:
        self._pools = pools
        self._buffers = {name: np.empty(0, pool.dtype) for name, pool in pools.items()}

    def __call__(self, table: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the caches `(B, K, N * block_size, W)` by name, which are valid until the next call.

        Args:
            table: int `(B, N)`. The blocks of each row.
        """
        heads = {pool.shape[1] for pool in self._pools.values()}
        indices = {count: table[:, None] * count + np.arange(count)[:, None] for count in heads}  # (B, K, N)
        return {name: self._gathered(name, indices[pool.shape[1]]) for name, pool in self._pools.items()}

    def _gathered(self, name: str, indices: np.ndarray) -> np.ndarray:
        pool = self._pools[name]
        block_size, width = pool.shape[2:]
        block = block_size * width
        size = indices.size * block
        if self._buffers[name].size < size:
            self._buffers[name] = np.empty(size, pool.dtype)
        out = self._buffers[name][:size].reshape(*indices.shape, block)
        # With another mode numpy would copy `out` once more.
        np.take(pool.reshape(-1, block), indices, axis=0, out=out, mode="clip")
        return out.reshape(*indices.shape[:2], indices.shape[2] * block_size, width)


def _pools(
    steps: RuntimeSteps, num_blocks: int, block_size: int, num_states: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Zeros by name: pools for tensors of all tokens, `(num_blocks, K, block_size, W)`, and of those of fixed size."""
    blocks, states = {}, {}
    # Two rows: one may have a fixed number of slots.
    probes = [steps.init_cache(2, length) for length in (block_size, block_size + 1)]
    for name, value in probes[0].items():
        array, longer = steps.as_numpy(value), steps.as_numpy(probes[1][name]).shape
        if array.shape == longer:
            states[name] = np.zeros((num_states, *array.shape[1:]), array.dtype)
        elif array.ndim == 4 and (array.shape[2], longer[2]) == (block_size, block_size + 1):
            blocks[name] = np.zeros((num_blocks, *array.shape[1:]), array.dtype)
        else:
            raise GenerationError(f"A cache has all tokens, (B, K, L, W), or a fixed size; {name!r} has neither.")
    return blocks, states


def _begun(states: np.ndarray, index: np.ndarray) -> np.ndarray:
    """States with zeros in rows that have read nothing yet."""
    states[index == 0] = 0
    return states


def _copy(pools: dict[str, np.ndarray], pairs: Iterable[tuple[int, int]]) -> None:
    for source, target in pairs:
        for pool in pools.values():
            pool[target] = pool[source]
