"""Embedding of chunks by hashed n-grams of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from keras_transformer.retrieval.errors import RetrievalError
from keras_transformer.utils.types import ArrayLike, JsonObject

_MULTIPLIER = 0x9E3779B97F4A7C15


@final
class HashedNGrams:
    """Hashed n-gram embedding of chunks: vectors of unit length with large inner products for chunks with common n-grams.

    Each n-gram adds 1 or -1 to one component; sign and component are a hash of the n-gram. Except for collisions, inner
    products equal those of the vectors of n-gram counts. Needs no training and no download. It compares tokens, not
    meanings.

    Args:
        width: int >= 1. Dimension of the vectors. Default 256.
        sizes: ints >= 1. The n-gram sizes n. Default 2, 3 and 4.
        seed: int >= 0. Seed of the hash.

    Call arguments:
        token_ids: int `(n, m)`.

    Returns:
        float32 `(n, width)`.

    Raises:
        RetrievalError: `width` or `sizes` below 1.

    Example:

    >>> import numpy as np
    >>> embed = HashedNGrams()
    >>> ours, alike, other = embed(np.array([[1, 2, 3, 4, 5], [9, 1, 2, 3, 4], [6, 7, 8, 9, 1]]))
    >>> bool(ours @ alike > ours @ other)
    True

    Reference: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, arXiv 0902.2206, equation 1.
    """

    def __init__(self, width: int = 256, sizes: Iterable[int] = (2, 3, 4), seed: int = 0) -> None:
        self.width, self.sizes, self.seed = int(width), tuple(int(size) for size in sizes), int(seed)
        if self.width < 1 or not self.sizes or min(self.sizes) < 1 or self.seed < 0:
            raise RetrievalError(f"width and sizes must be positive. Received: {width}, {sizes}, with seed {seed}")

    def __call__(self, token_ids: ArrayLike) -> np.ndarray:
        token_ids = np.asarray(token_ids).astype("uint64") + np.uint64(1)
        count, length = token_ids.shape
        vectors = np.zeros(count * self.width, "float32")
        rows = np.arange(count, dtype="int64")[:, None] * self.width
        for size in self.sizes:
            if size > length:
                continue
            start = (self.seed * 2**16 + size) * _MULTIPLIER % 2**64  # Differs for each size.
            hashed = np.full((count, length - size + 1), start, "uint64")
            for offset in range(size):
                hashed = _mixed(hashed ^ token_ids[:, offset : length - size + 1 + offset])
            components = (hashed >> np.uint64(1)) % np.uint64(self.width)
            signs = 1.0 - 2.0 * (hashed & np.uint64(1)).astype("float32")
            flat = (rows + components.astype("int64")).ravel()
            vectors += np.bincount(flat, signs.ravel(), minlength=len(vectors)).astype("float32")
        return normalize(vectors.reshape(count, self.width))

    def get_config(self) -> JsonObject:
        """Returns the arguments of the constructor."""
        return {"width": self.width, "sizes": list(self.sizes), "seed": self.seed}


def normalize(vectors: ArrayLike) -> np.ndarray:
    """Divides vectors `(n, D)` by their Euclidean norm; zero vectors stay zero."""
    vectors = np.asarray(vectors, "float32")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo("float32").tiny)


def _mixed(hashed: np.ndarray) -> np.ndarray:
    """Mixes the bits of uint64 numbers: every bit of the result depends on every bit of the input."""
    hashed = (hashed ^ (hashed >> np.uint64(31))) * np.uint64(_MULTIPLIER)
    return hashed ^ (hashed >> np.uint64(29))
