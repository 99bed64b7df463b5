"""Gathering of the blocks of many sequences from pools, as the caches that a step of a runtime reads."""

from collections.abc import Mapping

import numpy as np


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
