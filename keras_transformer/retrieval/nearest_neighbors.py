"""Maximum inner product search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_transformer.retrieval.search_backends import SEARCH_BACKENDS, SearchBackend
from keras_transformer.utils.types import ArrayLike, Path


class NearestNeighbors:
    """Index of vectors for maximum inner product search.

    Vectors are not copied, so an array on disk (`np.load(..., mmap_mode="r")`) stays there; libraries store their own copy.
    Encoder states are added once, and can be searched by all heads of all layers.

    Args:
        backend: "exact" is brute-force search over all vectors, in chunks. "faiss" and "usearch" are approximate (HNSW),
            faster from about 100,000 vectors, and store all vectors in memory. "faiss_compressed" (IVF, PQ) stores one byte
            for four components, is trained on the vectors that are added first (at least 256), and re-ranks the best
            candidates by their original vectors. All but "exact" need `pip install ".[retrieval]"`.
        chunk_size: int >= 1. Number of vectors that "exact" searches, and the others add, at a time.
        neighbors: int >= 2. Links per vector in the HNSW graph of "faiss" and "usearch" (M). More increase recall.
        effort: int >= 1. Number of candidates during search and construction of "faiss" and "usearch" (efSearch,
            efConstruction), and per mille of the vectors that "faiss_compressed" compares with a query. More increase
            recall.

    Raises:
        ValueError: an unknown backend; an argument below its range.
        ImportError: the library of the backend is not installed.

    Example:

    >>> import numpy as np
    >>> index = NearestNeighbors()
    >>> index.add(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]))
    >>> scores, ids = index.search(np.array([[1.0, 0.0]]), top_k=2)
    >>> scores.tolist(), ids.tolist()
    ([[2.0, 1.0]], [[2, 0]])

    Reference: "faiss", "usearch": Malkov and Yashunin, HNSW, arXiv 1603.09320. "faiss_compressed": Jégou et al., Product
    Quantization for Nearest Neighbor Search.
    """

    def __init__(self, backend: str = "exact", chunk_size: int = 16384, neighbors: int = 32, effort: int = 128) -> None:
        if backend not in SEARCH_BACKENDS:
            raise ValueError(f"Unknown name {backend!r}. Valid names: {', '.join(sorted(SEARCH_BACKENDS))}")
        self.backend = backend
        self.chunk_size = _positive("chunk_size", chunk_size)
        self.neighbors, self.effort = _positive("neighbors", neighbors), _positive("effort", effort)
        self._parts: list[np.ndarray] = []
        self._length = 0
        self._searcher: SearchBackend | None = None

    def __len__(self) -> int:
        return self._length

    def add(self, vectors: ArrayLike) -> None:
        """Adds an array of vectors `(S, D)`. Ids continue those of the vectors before."""
        if len(vectors.shape) != 2 or (self._parts and vectors.shape[1] != self._parts[0].shape[1]):
            raise ValueError(f"Expected vectors (S, D), with the same D. Received: {tuple(vectors.shape)}")
        searcher = self._searcher or SEARCH_BACKENDS[self.backend](self, vectors)
        self._searcher = searcher
        for start in range(0, len(vectors), self.chunk_size):
            part = np.ascontiguousarray(vectors[start : start + self.chunk_size], "float32")
            searcher.add(part, self._length + start)
        self._parts.append(vectors)
        self._length += len(vectors)

    def save(self, path: Path) -> None:
        """Writes the index of the backend to a file. That of "exact" is empty."""
        if self._searcher is None or not self._length:
            raise ValueError("The index is empty. Add vectors before saving.")
        self._searcher.save(str(path))

    def load(self, path: Path, vectors: ArrayLike) -> None:
        """Loads an index written by `save`, with its vectors `(S, D)`, without building it again.

        Raises:
            ValueError: the file cannot be read, or has another number of vectors.
        """
        self._searcher = searcher = SEARCH_BACKENDS[self.backend](self, vectors, trained=False)
        count = searcher.load(str(path), vectors)
        if count != len(vectors):
            raise ValueError(f"'{path}' has {count} vectors. Expected: {len(vectors)}")
        self._parts, self._length = [vectors], len(vectors)

    def search(self, queries: ArrayLike, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds the `min(top_k, S)` vectors with the largest inner products for each query.

        Args:
            queries: float `(..., D)`.
            top_k: int >= 1.

        Returns:
            Tuple of inner products, float32, and ids, int64, `(..., min(top_k, S))` each, the largest first. If approximate
            search finds fewer, the other ids are -1.

        Raises:
            ValueError: the index is empty.
        """
        if self._searcher is None or not self._length:
            raise ValueError("The index is empty. Add vectors before searching.")
        queries = np.asarray(queries, "float32")
        top_k = min(_positive("top_k", top_k), self._length)
        scores, ids = self._searcher.search(queries.reshape(-1, queries.shape[-1]), top_k)
        shape = (*queries.shape[:-1], top_k)
        return scores.reshape(shape), ids.astype("int64").reshape(shape)

    def vectors(self, ids: ArrayLike) -> np.ndarray:
        """Returns the vectors with these ids, float32 `(..., D)`."""
        ids, start = np.asarray(ids), 0
        found = np.empty((*ids.shape, self._parts[0].shape[1]), "float32")
        for part in self._parts:
            here = (ids >= start) & (ids < start + len(part))
            found[here] = part[ids[here] - start]
            start += len(part)
        return found

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the id of the first vector, and at most `chunk_size` float32 vectors."""
        start = 0
        for part in self._parts:
            for begin in range(0, len(part), self.chunk_size):
                yield start + begin, np.asarray(part[begin : begin + self.chunk_size], "float32")
            start += len(part)


def _positive(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive integer. Received: {value!r}")
    return value
