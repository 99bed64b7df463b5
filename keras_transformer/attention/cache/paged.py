"""Keys and values of many sequences in the blocks of one pool: PagedAttention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from keras import ops

from keras_transformer.attention.cache.layout import bits, split_cache
from keras_transformer.attention.cache.quantized import SCALE, dequantize_rows, quantize_rows
from keras_transformer.utils.types import Cache, Tensor

# Padding is written to this block. It belongs to no sequence, and no query sees it.
SCRATCH_BLOCK = 0


@dataclasses.dataclass(frozen=True)
class PagedCache:
    """Paged key/value cache: the slots of all sequences are in blocks of one pool.

    A sequence has a block table: its slot s is in block `table[s // block_size]`, at offset `s % block_size`. Models need
    no change: `read` gathers the blocks of a batch into the cache that every layer takes, `(B, K, L, W)`, and `write`
    scatters the new tokens back into the blocks. Slots past the end of a sequence keep old values, which the causal mask
    hides. The memory is that of the pool; a step copies `B · L` slots, which attention reads in any case.

    Args:
        tensors: dict from the name of each tensor of the cache to `(heads, width, dtype)`.
        num_blocks: int >= 2. Block 0 is for padding.
        block_size: int >= 1. Slots per block.
        quantize: bool. Whether floats are stored as int8 with a float32 scale for each slot and head: a quarter of the
            memory of float32, with small differences in the outputs.

    Raises:
        ValueError: sizes out of range.

    Example:

    >>> import numpy as np
    >>> pages = PagedCache({"key": (1, 2, "float32")}, num_blocks=4, block_size=2)
    >>> pools, table = pages.init_pools(), np.array([[3, 1]])
    >>> cache = {"key": np.arange(8.0, dtype="float32").reshape(1, 1, 4, 2)}
    >>> pools = pages.write(pools, cache, table, cache_index=np.array([1]), lengths=np.array([2]), count=2)
    >>> np.array(pages.read(pools, table)["key"])[0, 0].tolist()
    [[0.0, 0.0], [2.0, 3.0], [4.0, 5.0], [0.0, 0.0]]

    Reference: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention,
    arXiv 2309.06180, section 4. Deviations: blocks are gathered before attention, where the paper has a kernel that reads
    them in place; heads come before slots within a block, as in all caches of this package.
    """

    tensors: dict[str, tuple[int, int, str]]
    num_blocks: int
    block_size: int
    quantize: bool = False

    def __post_init__(self) -> None:
        if self.num_blocks < 2 or self.block_size < 1:
            raise ValueError(
                f"A paged cache needs num_blocks >= 2 (block 0 is for padding) and block_size >= 1. "
                f"Received: num_blocks={self.num_blocks}, block_size={self.block_size}"
            )

    @classmethod
    def from_cache(
        cls, init_cache: Callable[[int, int], Cache], num_blocks: int, block_size: int, quantize: bool = False
    ) -> PagedCache:
        """Creates the paged form of a model's cache. Tensors that do not grow with the sequence belong to `StatePool`.

        Args:
            init_cache: function of batch size and max length, as `Stepwise.init_cache`.
            num_blocks, block_size, quantize: see the class.

        Raises:
            ValueError: a tensor neither keeps all tokens nor has a fixed size.
        """
        return cls(split_cache(init_cache)[0], num_blocks, block_size, quantize)

    def init_pools(self) -> Cache:
        """Returns empty pools: dict of `(num_blocks · K, block_size, W)`, with the heads of a block in consecutive rows."""
        pools = {}
        for name, (heads, width, dtype) in self.tensors.items():
            shape = (self.num_blocks * heads, self.block_size)
            pools[name] = ops.zeros((*shape, width), "int8" if self._is_quantized(name) else dtype)
            if self._is_quantized(name):
                pools[name + SCALE] = ops.zeros((*shape, 1), "float32")
        return pools

    def read(self, pools: Cache, table: Tensor, take: Callable[..., Tensor] | None = None) -> Cache:
        """Returns the cache of a batch.

        Args:
            pools: as `init_pools` returns.
            table: int32 `(B, M)`: the blocks of each row, padded with `SCRATCH_BLOCK`.
            take: function of a pool and of indices into its first axis. Defaults to `keras.ops.take`.

        Returns:
            dict of `(B, K, M · block_size, W)`.
        """
        take = take or _take
        indices, cache = {}, {}
        for name, (heads, width, dtype) in self.tensors.items():
            if heads not in indices:
                indices[heads] = _pool_rows(table, heads)
            blocks = self._blocks(pools, name, lambda pool, rows=indices[heads]: take(pool, rows))
            slots = ops.shape(table)[1] * self.block_size
            cache[name] = ops.reshape(ops.cast(blocks, dtype), (-1, heads, slots, width))
        return cache

    def write(
        self,
        pools: Cache,
        cache: Cache,
        table: Tensor,
        cache_index: Tensor,
        lengths: Tensor,
        count: int,
        put: Callable[..., Tensor] | None = None,
    ) -> Cache:
        """Returns pools that contain the new tokens of a batch.

        Args:
            pools: as `init_pools` returns.
            cache: as `read` returns, with the new tokens added.
            table: int32 `(B, M)`.
            cache_index: int32 `(B,)`: the slot of the first new token of each row.
            lengths: int32 `(B,)`: how many of the new tokens are not padding. Padding goes to `SCRATCH_BLOCK`.
            count: int: the number T of new tokens, padding included.
            put: function of a pool, indices `(n, 2)` and values `(n, W)`. Defaults to `keras.ops.scatter_update`.

        Returns:
            The next pools.
        """
        scatter = put or ops.scatter_update
        table, cache_index, lengths = (ops.cast(each, "int32") for each in (table, cache_index, lengths))
        steps = ops.expand_dims(ops.arange(count, dtype="int32"), 0)
        slots = ops.reshape(cache_index, (-1, 1)) + steps  # (B, T)
        blocks = ops.take_along_axis(table, ops.minimum(slots // self.block_size, ops.shape(table)[1] - 1), axis=1)
        blocks = ops.where(steps < ops.reshape(lengths, (-1, 1)), blocks, SCRATCH_BLOCK)
        indices, pools = {}, dict(pools)
        for name, (heads, width, _) in self.tensors.items():
            if heads not in indices:
                indices[heads] = self._indices(slots, blocks, heads, ops.shape(cache[name])[2])
            source, target = indices[heads]
            new = ops.take(ops.reshape(cache[name], (-1, width)), source, axis=0)
            for part, tensor in self._stored(name, new).items():
                pools[part] = scatter(pools[part], target, tensor)
        return pools

    def copy(
        self,
        pools: Cache,
        sources: Tensor,
        targets: Tensor,
        take: Callable[..., Tensor] | None = None,
        put: Callable[..., Tensor] | None = None,
    ) -> Cache:
        """Returns pools with blocks `sources` copied to `targets`, int32 `(n,)` each. For copy-on-write."""
        gather, scatter = take or _take, put or ops.scatter_update
        pools = dict(pools)
        for name, (heads, _, _) in self.tensors.items():
            rows, indices = (
                ops.reshape(_pool_rows(ops.expand_dims(each, 1), heads), (-1, 1)) for each in (sources, targets)
            )
            for part in (name, name + SCALE) if self._is_quantized(name) else (name,):
                pools[part] = scatter(pools[part], indices, gather(pools[part], ops.reshape(rows, (-1,))))
        return pools

    @property
    def block_bytes(self) -> int:
        """int: the size of one block in bytes."""
        size = 0
        for name, (heads, width, dtype) in self.tensors.items():
            slot = width + 4 if self._is_quantized(name) else width * bits(dtype) // 8
            size += heads * self.block_size * slot
        return size

    def _is_quantized(self, name):
        return self.quantize and "float" in self.tensors[name][2] and not name.endswith(SCALE)

    def _blocks(self, pools, name, take):
        """Returns the blocks of one tensor, float `(B, K, M, block_size, W)`."""
        blocks = take(pools[name])
        if not self._is_quantized(name):
            return blocks
        return dequantize_rows(blocks, take(pools[name + SCALE]))

    def _stored(self, name, new):
        """Returns what is stored for new slots `(n, W)`: a dict from pool names to tensors."""
        if not self._is_quantized(name):
            return {name: new}
        return dict(zip((name, name + SCALE), quantize_rows(new), strict=True))

    def _indices(self, slots, blocks, heads, length):
        """Returns, for each head of each new token, its row in the flattened cache `(n,)` and its pool index `(n, 2)`."""
        head = ops.reshape(ops.arange(heads, dtype="int32"), (1, -1, 1))
        row = ops.reshape(ops.arange(ops.shape(slots)[0], dtype="int32"), (-1, 1, 1))
        slots, blocks = ops.expand_dims(slots, 1), ops.expand_dims(blocks, 1)
        source = (row * heads + head) * length + slots  # (B, K, T)
        target = [blocks * heads + head, slots % self.block_size + head * 0]
        return ops.reshape(source, (-1,)), ops.stack([ops.reshape(axis, (-1,)) for axis in target], axis=1)


def _take(pool, indices):
    return ops.take(pool, indices, axis=0)


def _pool_rows(table, heads):
    """Converts block indices `(B, M)` to row indices of a pool, `(B, heads, M)`."""
    head = ops.reshape(ops.arange(heads, dtype="int32"), (1, -1, 1))
    return ops.expand_dims(ops.cast(table, "int32"), 1) * heads + head
