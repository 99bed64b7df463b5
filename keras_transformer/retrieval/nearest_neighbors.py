"""Search for the vectors with the largest products."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.retrieval.search_backends import SEARCH_BACKENDS
from keras_transformer.utils.types import Path


class NearestNeighbors:
    """An index of vectors for maximum inner product search.

    Vectors are not copied, so that an array on disk (`np.load(..., mmap_mode="r")`) stays there; libraries keep a copy in
    their own format. Hidden states of an encoder are added once, and serve every head of every layer.

    Args:
        backend: "exact" compares with all vectors, in chunks; "faiss" and "usearch" are approximate, and faster from some
            100,000 vectors on. Those two keep all vectors in memory; "faiss_compressed" keeps a byte for every four numbers,
            trained on the vectors that are added first, at least 256, and rescores the best candidates with the originals.
            All three need `pip install ".[retrieval]"`.
        chunk_size: int >= 1. Number of vectors that "exact" compares, and others add, at a time.
        neighbors: int >= 2. Number of links per vector in the graph of "faiss" and "usearch"; more are more exact.
        effort: int >= 1. Number of candidates that these two keep while searching, and of vectors per thousand
            that "faiss_compressed" compares with a query; more are more exact.

    Raises:
        ValueError: unknown backend; arguments below their range.
        ImportError: the library of the backend is not installed.

    Example:

    >>> import numpy as np
    >>> index = NearestNeighbors()
    >>> index.add(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]))
    >>> scores, ids = index.search(np.array([[1.0, 0.0]]), top_k=2)
    >>> scores.tolist(), ids.tolist()
    ([[2.0, 1.0]], [[2, 0]])

    Reference: Malkov and Yashunin, HNSW, arXiv 1603.09320, for "faiss" and "usearch"; Jégou et al., Product Quantization for
    Nearest Neighbor Search, for "faiss_compressed".
    """

    def __init__(self, backend: Any = "exact", chunk_size: int = 16384, neighbors: Any = 32, effort: int = 128) -> None:
        if backend not in SEARCH_BACKENDS:
            raise ValueError(f"Unknown name {backend!r}. Valid names: {', '.join(sorted(SEARCH_BACKENDS))}")
        self.backend = backend
        self.chunk_size = _positive("chunk_size", chunk_size)
        self.neighbors, self.effort = _positive("neighbors", neighbors), _positive("effort", effort)
        self._parts: list[Any] = []
        self._length = 0
        self._searcher: Any = None

    def __len__(self) -> int:
        return self._length

    def add(self, vectors: Any) -> None:
        """Adds vectors `(S, D)`, an array; their indices follow those of earlier ones."""
        if len(vectors.shape) != 2 or (self._parts and vectors.shape[1] != self._parts[0].shape[1]):
            raise ValueError(f"Expected vectors (S, D), of one width. Received: {tuple(vectors.shape)}")
        self._searcher = self._searcher or SEARCH_BACKENDS[self.backend](self, vectors)
        for start in range(0, len(vectors), self.chunk_size):
            part = np.ascontiguousarray(vectors[start : start + self.chunk_size], "float32")
            self._searcher.add(part, self._length + start)
        self._parts.append(vectors)
        self._length += len(vectors)

    def save(self, path: Path) -> None:
        """Writes the index of the library to a file; "exact" writes an empty one."""
        if not self._length:
            raise ValueError("The index is empty: add vectors before saving.")
        self._searcher.save(str(path))

    def load(self, path: Path, vectors: Any) -> Any:
        """Loads a file of `save`, with the vectors `(S, D)` that it was built from: nothing is rebuilt.

        Raises:
            ValueError: the file is of another number of vectors, or cannot be read.
        """
        self._searcher = SEARCH_BACKENDS[self.backend](self, vectors, trained=False)
        count = self._searcher.load(str(path), vectors)
        if count != len(vectors):
            raise ValueError(f"'{path}' is an index of {count} vectors, not of {len(vectors)}.")
        self._parts, self._length = [vectors], len(vectors)

    def search(self, queries: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """The best `min(top_k, S)` vectors of each query.

        Args:
            queries: float `(..., D)`.
            top_k: int >= 1.

        Returns:
            Their products, float32, and indices, int64, `(..., min(top_k, S))` each, the best first. Where an approximate
            search finds fewer, the others have the index -1.

        Raises:
            ValueError: the index is empty.
        """
        if not self._length:
            raise ValueError("The index is empty: add vectors before searching.")
        queries = np.asarray(queries, "float32")
        top_k = min(_positive("top_k", top_k), self._length)
        scores, ids = self._searcher.search(queries.reshape(-1, queries.shape[-1]), top_k)
        shape = (*queries.shape[:-1], top_k)
        return scores.reshape(shape), ids.astype("int64").reshape(shape)

    def vectors(self, ids: Any) -> np.ndarray:
        """The vectors with these indices, float32 `(..., D)`."""
        ids, start = np.asarray(ids), 0
        found = np.empty((*ids.shape, self._parts[0].shape[1]), "float32")
        for part in self._parts:
            here = (ids >= start) & (ids < start + len(part))
            found[here] = part[ids[here] - start]
            start += len(part)
        return found

    def chunks(self) -> Any:
        """Pairs of the index of the first vector, and at most `chunk_size` float32 vectors."""
        start = 0
        for part in self._parts:
            for begin in range(0, len(part), self.chunk_size):
                yield start + begin, np.asarray(part[begin : begin + self.chunk_size], "float32")
            start += len(part)


def _positive(name: Any, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive integer. Received: {value!r}")
    return value
