"""Search for the vectors with the largest products, and attention to them: for more keys than a graph can hold."""

import math

import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.saving import choice


class NearestNeighbours:
    """An index of vectors that finds, for each query, those with the largest products.

    Vectors are kept as they are given, so that an array on disk (`np.load(..., mmap_mode="r")`) stays there; libraries keep
    a copy in their own form. Hidden states of an encoder are added once, and serve every head of every layer.

    Args:
        backend: "exact" looks through all vectors, in chunks; "faiss" and "usearch" are approximate, and faster from some
            100,000 vectors on: they need `pip install keras-transformer[retrieval]`.
        chunk_size: int >= 1. How many vectors "exact" looks at, at a time.
        neighbours: int >= 2. How many links a vector has in the graph of "faiss" and "usearch"; more are more exact.
        effort: int >= 1. How many candidates these two keep while they search; more are more exact.

    Raises:
        ValueError: unknown backend; arguments below their range.
        ImportError: the library of the backend is not installed.

    Example:

    >>> import numpy as np
    >>> index = NearestNeighbours()
    >>> index.add(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]))
    >>> scores, ids = index.search(np.array([[1.0, 0.0]]), top_k=2)
    >>> scores.tolist(), ids.tolist()
    ([[2.0, 1.0]], [[2, 0]])

    Reference: Malkov and Yashunin, HNSW, arXiv 1603.09320, for the approximate ones.
    """

    def __init__(self, backend="exact", chunk_size=16384, neighbours=32, effort=128):
        self.backend = backend
        make = choice(backend, _BACKENDS)
        self.chunk_size = positive("chunk_size", chunk_size)
        self._parts, self._length = [], 0
        self._make = lambda width: make(self, width, positive("neighbours", neighbours), positive("effort", effort))
        self._searcher = None

    def __len__(self):
        return self._length

    def add(self, vectors):
        """Adds vectors `(S, D)`, an array; they are numbered on from those before."""
        if len(vectors.shape) != 2 or (self._parts and vectors.shape[1] != self._parts[0].shape[1]):
            raise ValueError(f"Expected vectors (S, D), of one width. Received: {tuple(vectors.shape)}")
        self._searcher = self._searcher or self._make(vectors.shape[1])
        self._parts.append(vectors)
        self._searcher.add(vectors, self._length)
        self._length += len(vectors)

    def search(self, queries, top_k):
        """The best `min(top_k, S)` vectors of each query.

        Args:
            queries: float `(..., D)`.
            top_k: int >= 1.

        Returns:
            Their products, float32, and numbers, int64, `(..., min(top_k, S))` each, the best first.

        Raises:
            ValueError: the index is empty.
        """
        if not self._length:
            raise ValueError("The index is empty: add vectors before searching.")
        queries = np.asarray(queries, "float32")
        top_k = min(positive("top_k", top_k), self._length)
        scores, ids = self._searcher.search(queries.reshape(-1, queries.shape[-1]), top_k)
        shape = (*queries.shape[:-1], top_k)
        return scores.reshape(shape), ids.astype("int64").reshape(shape)

    def vectors(self, ids):
        """The vectors with these numbers, float32 `(..., D)`."""
        ids, start = np.asarray(ids), 0
        found = np.empty((*ids.shape, self._parts[0].shape[1]), "float32")
        for part in self._parts:
            here = (ids >= start) & (ids < start + len(part))
            found[here] = part[ids[here] - start]
            start += len(part)
        return found

    def chunks(self):
        """Pairs of the number of the first vector, and at most `chunk_size` float32 vectors."""
        start = 0
        for part in self._parts:
            for begin in range(0, len(part), self.chunk_size):
                yield start + begin, np.asarray(part[begin : begin + self.chunk_size], "float32")
            start += len(part)


class _Exact:
    def __init__(self, index, width, neighbours, effort):
        self._index = index

    def add(self, vectors, start):
        pass

    def search(self, queries, top_k):
        best = np.full((len(queries), top_k), -np.inf, "float32")
        ids = np.zeros((len(queries), top_k), "int64")
        for start, chunk in self._index.chunks():
            scores = np.concatenate([best, queries @ chunk.T], axis=1)
            places = np.argpartition(scores, -top_k, axis=1)[:, -top_k:]
            numbers = np.concatenate(
                [ids, np.broadcast_to(np.arange(start, start + len(chunk)), (len(ids), len(chunk)))], 1
            )
            best, ids = (np.take_along_axis(x, places, axis=1) for x in (scores, numbers))
        order = np.argsort(-best, axis=1, kind="stable")
        return np.take_along_axis(best, order, axis=1), np.take_along_axis(ids, order, axis=1)


class _Faiss:
    def __init__(self, index, width, neighbours, effort):
        faiss = _library("faiss")
        self._graph = faiss.IndexHNSWFlat(width, neighbours, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction, self._effort = effort, effort

    def add(self, vectors, start):
        self._graph.add(np.ascontiguousarray(vectors, "float32"))

    def search(self, queries, top_k):
        self._graph.hnsw.efSearch = max(self._effort, top_k)
        return self._graph.search(np.ascontiguousarray(queries), top_k)


class _Usearch:
    def __init__(self, index, width, neighbours, effort):
        options = {"connectivity": neighbours, "expansion_add": effort, "expansion_search": effort}
        self._graph = _library("usearch.index").Index(ndim=width, metric="ip", dtype="f32", **options)

    def add(self, vectors, start):
        numbers = np.arange(start, start + len(vectors), dtype="uint64")
        self._graph.add(numbers, np.ascontiguousarray(vectors, "float32"))

    def search(self, queries, top_k):
        found = self._graph.search(np.ascontiguousarray(queries), top_k)
        # It gives distances, 1 - product.
        shape = (len(queries), top_k)
        return 1.0 - np.asarray(found.distances, "float32").reshape(shape), np.asarray(found.keys).reshape(shape)


_BACKENDS = {"exact": _Exact, "faiss": _Faiss, "usearch": _Usearch}


def _library(name):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f"The backend {package!r} needs its library: pip install keras-transformer[retrieval]"
        ) from error


def attend_to_neighbours(layer, query, index, top_k=16):
    """What a cross-attention layer gives where each head attends to the `top_k` indexed states that fit it best.

    A head scores a state h by `(x W_q) · (h W_k) = (x W_q W_kᵀ) · h`: so one index of the states themselves serves all heads
    and layers. And as the weights w sum to 1, the context is `(Σ w h) W_v`: no state is projected.

    Args:
        layer: a built `MultiHeadAttention`, without position and gate.
        query: float `(B, T, D_query)`.
        index: `NearestNeighbours` of the states `(S, D)` that are key and value.
        top_k: int >= 1.

    Returns:
        The output `(B, T, D_query)`. With `top_k >= S` it is that of softmax attention, of `RetrievalAttention` otherwise.

    Raises:
        ValueError: the layer has a position or a gate, or no projection of keys.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> layer, states, index = MultiHeadAttention(2, 4), np.random.normal(size=(50, 8)), NearestNeighbours()
    >>> x = np.ones((1, 3, 8))
    >>> layer.build(x.shape, x.shape)
    >>> index.add(states)
    >>> np.allclose(attend_to_neighbours(layer, x, index, 50), layer(x, states[None]), atol=1e-5)
    True

    Reference: Bertsch et al., Unlimiformer, arXiv 2305.01625, section 2.3. A bias of the keys adds the same to all scores of
    a query, and is left out.
    """
    if layer.position is not None or layer._use_gate or layer.key_dense is None:
        raise ValueError("A layer with a position, a gate or shared keys cannot search for states: give one without.")
    groups = layer.num_heads // layer.num_key_value_heads
    query = layer.query_dense(query)  # (B, T, N, H)
    key_kernel, value_kernel = (ops.repeat(x.kernel, groups, axis=1) for x in (layer.key_dense, layer.value_dense))
    wanted = ops.einsum("btnh,dnh->btnd", query, key_kernel) / math.sqrt(layer.key_dim)
    scores, ids = index.search(ops.convert_to_numpy(wanted), top_k)
    states = index.vectors(ids)  # (B, T, N, top_k, D)
    weights = ops.softmax(ops.convert_to_tensor(scores), axis=-1)
    mixed = ops.einsum("btns,btnsd->btnd", weights, ops.convert_to_tensor(states))
    context = ops.einsum("btnd,dnh->btnh", mixed, value_kernel)
    if layer.use_bias:
        context = context + ops.repeat(layer.value_dense.bias, groups, axis=0)
    return layer.output_dense(context)
