"""Search backends of `NearestNeighbors`: brute force, faiss and usearch."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from keras_transformer.utils.types import ArrayLike
from keras_transformer.version import install_command

if TYPE_CHECKING:
    from keras_transformer.retrieval.nearest_neighbors import NearestNeighbors

# Number of candidates that "faiss_compressed" re-ranks, for each result.
_CANDIDATES = 8
_TRAINING_VECTORS = 65536
# Maximum number of inner products that "exact" has in memory.
_SCORES = 2**22


class SearchBackend(Protocol):
    """Search among the vectors of an index. Created with the index and the vectors that are added first."""

    def __init__(self, index: NearestNeighbors, vectors: ArrayLike, trained: bool = True) -> None: ...

    def add(self, vectors: np.ndarray, start: int) -> None:
        """Adds vectors `(S, D)` with the ids from `start`."""

    def save(self, path: str) -> None:
        """Writes the index of the library."""

    def load(self, path: str, vectors: ArrayLike) -> int:
        """Loads an index, and returns its number of vectors."""
        ...

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and ids `(Q, top_k)`, as `NearestNeighbors.search`."""
        ...


class Exact:
    """Brute-force search, in chunks of vectors."""

    def __init__(self, index: NearestNeighbors, vectors: ArrayLike, trained: bool = True) -> None:
        self._index = index

    def add(self, vectors: np.ndarray, start: int) -> None:
        pass

    def save(self, path: str) -> None:
        open(path, "wb").close()

    def load(self, path: str, vectors: ArrayLike) -> int:
        return len(vectors)

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        best = np.full((len(queries), top_k), -np.inf, "float32")
        ids = np.full((len(queries), top_k), -1, "int64")
        size = max(1, _SCORES // self._index.chunk_size)
        for start, chunk in self._index.chunks():
            for first in range(0, len(queries), size):
                rows, scores = slice(first, first + size), queries[first : first + size] @ chunk.T
                scores, found = _best(scores, np.arange(start, start + len(chunk))[None], top_k)
                both = np.concatenate([best[rows], scores], 1), np.concatenate([ids[rows], found], 1)
                best[rows], ids[rows] = _best(*both, top_k)
        return _sorted(best, ids)


class Faiss:
    """faiss `IndexHNSWFlat`: an HNSW graph, with the vectors in memory."""

    def __init__(self, index: NearestNeighbors, vectors: ArrayLike, trained: bool = True) -> None:
        self._faiss, self._effort = _library("faiss"), index.effort
        self._graph = self._faiss.IndexHNSWFlat(vectors.shape[1], index.neighbors, self._faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = index.effort

    def add(self, vectors: np.ndarray, start: int) -> None:
        self._graph.add(vectors)

    def save(self, path: str) -> None:
        self._faiss.write_index(self._graph, path)

    def load(self, path: str, vectors: ArrayLike) -> int:
        try:
            self._graph = self._faiss.read_index(path)
        except RuntimeError as error:
            raise ValueError(f"'{path}' is not a search index: {error}") from None
        return self._graph.ntotal

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        self._graph.hnsw.efSearch = max(self._effort, top_k)
        return self._graph.search(np.ascontiguousarray(queries), top_k)


class FaissCompressed(Faiss):
    """faiss inverted file index with product quantization (IVF, PQ), and re-ranking by the original vectors."""

    def __init__(self, index: NearestNeighbors, vectors: ArrayLike, trained: bool = True) -> None:
        self._faiss, self._effort, self._index = _library("faiss"), index.effort, index
        if trained:
            self._graph = self._trained(vectors)

    def _trained(self, vectors: ArrayLike) -> Any:
        count, width = vectors.shape
        if count < 256 or width % 4:
            raise ValueError(
                "'faiss_compressed' is trained on the first vectors: at least 256, with a dimension divisible by 4. "
                f"Received: {tuple(vectors.shape)}"
            )
        lists = max(1, min(int(np.sqrt(count)), count // 39))
        # "np": no polysemous training, which takes a minute and serves a search by Hamming distances alone.
        graph = self._faiss.index_factory(width, f"IVF{lists},PQ{width // 4}x8np", self._faiss.METRIC_INNER_PRODUCT)
        chosen = np.linspace(0, count - 1, min(count, _TRAINING_VECTORS)).astype("int64")
        graph.train(np.ascontiguousarray(vectors[chosen], "float32"))
        return graph

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        self._graph.nprobe = max(1, -(-self._graph.nlist * self._effort // 1000))
        count = min(_CANDIDATES * top_k, self._graph.ntotal)
        _, ids = self._graph.search(np.ascontiguousarray(queries), count)
        vectors = self._index.vectors(np.maximum(ids, 0))
        scores = np.where(ids >= 0, np.einsum("qd,qcd->qc", queries, vectors), -np.inf).astype("float32")
        scores, ids = _sorted(scores, ids)
        return scores[:, :top_k], ids[:, :top_k]


class Usearch:
    """usearch `Index`: an HNSW graph."""

    def __init__(self, index: NearestNeighbors, vectors: ArrayLike, trained: bool = True) -> None:
        options = {"connectivity": index.neighbors, "expansion_add": index.effort, "expansion_search": index.effort}
        self._graph = _library("usearch.index").Index(ndim=vectors.shape[1], metric="ip", dtype="f32", **options)

    def add(self, vectors: np.ndarray, start: int) -> None:
        self._graph.add(np.arange(start, start + len(vectors), dtype="uint64"), vectors)

    def save(self, path: str) -> None:
        self._graph.save(path)

    def load(self, path: str, vectors: ArrayLike) -> int:
        try:
            self._graph.load(path)
        except RuntimeError as error:
            raise ValueError(f"'{path}' is not a search index: {error}") from None
        return len(self._graph)

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        found = self._graph.search(np.ascontiguousarray(queries), top_k)
        # The distance is 1 - inner product.
        shape = (len(queries), top_k)
        return 1.0 - np.asarray(found.distances, "float32").reshape(shape), np.asarray(found.keys).reshape(shape)


SEARCH_BACKENDS: dict[str, type[SearchBackend]] = {
    "exact": Exact,
    "faiss": Faiss,
    "faiss_compressed": FaissCompressed,
    "usearch": Usearch,
}


def _best(scores: np.ndarray, ids: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest scores of each row in any order, with the corresponding ids `(1 | Q, S)`."""
    if scores.shape[1] > count:
        best = np.argpartition(scores, -count, axis=1)[:, -count:]
        scores = np.take_along_axis(scores, best, axis=1)
        return scores, np.take_along_axis(np.broadcast_to(ids, (len(best), ids.shape[1])), best, axis=1)
    return scores, np.broadcast_to(ids, scores.shape)


def _sorted(scores: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _library(name: str) -> ModuleType:
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(f"The search backend {package!r} is not installed: {install_command('retrieval')}") from error
