"""Clustered attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.partition.bands import pad_length
from keras_transformer.attention.partition.clusters import ClusterBlocks, cluster_bits, hash_bits, members_of
from keras_transformer.attention.softmax_ops import weighted_sum
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


class _Clustered(Mechanism):
    """Base class of clustered attention: the arguments and the clustering of queries."""

    supports = frozenset({"bidirectional", "cross"})

    def __init__(
        self,
        num_clusters: int = 100,
        bits: Tensor = 32,
        iterations: int = 10,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_clusters = positive("num_clusters", num_clusters)
        self.bits = positive("bits", bits)
        self.iterations = iterations
        self.dropout = dropout
        self.seed = seed
        self.softmax = SoftmaxAttention("scaled_dot", dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self.softmax.build(query_shape, key_shape, value_shape)
        self.hash_planes = self.add_weight(
            name="hash_planes",
            shape=(self.bits, query_shape[3] + 1),
            initializer=keras.initializers.RandomNormal(stddev=1.0, seed=self.seed),
            trainable=False,
            autocast=False,
        )

    def clusters(self, query: Tensor, query_mask: Tensor | None = None) -> Tensor:
        """Returns the cluster of each query `(B, T, N, H)`: int `(B, N, T)`, `num_clusters` for padding."""
        heads, length = query.shape[2], ops.shape(query)[1]
        seen = ops.ones((ops.shape(query)[0], length), dtype="bool") if query_mask is None else query_mask
        seen = ops.repeat(ops.cast(seen, "float32"), heads, axis=0)
        bits = hash_bits(query, self.hash_planes)
        clusters = cluster_bits(bits, seen, self.num_clusters, self.iterations)
        return ops.reshape(clusters, (-1, heads, length))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        clusters = self.clusters(query, visibility.query_mask)
        context = self.attend_clusters(query, key, value, clusters, visibility.key_mask, training)
        if visibility.query_mask is None:
            return context
        return context * ops.cast(ops.expand_dims(ops.expand_dims(visibility.query_mask, 2), 3), context.dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_clusters": self.num_clusters,
            "bits": self.bits,
            "iterations": self.iterations,
            "dropout": self.dropout,
            "seed": self.seed,
        }


@serializable
class ClusteredAttention(_Clustered):
    """Clustered attention: all queries of a cluster use the attention weights of their mean.

        y_i = Σ_j softmax_j(q̄_c · k_j / √H) v_j,   q̄_c = mean of q_i over the cluster c of i

    Queries are clustered by k-means in Hamming space, on hashes of `bits` signs of random projections.
    Memory grows with `C · (S + T)` for C clusters and S keys, time with `C · S · H + T · C · (bits · iterations + H)`.

    Args:
        num_clusters: int >= 1. C. Default 100.
        bits: int >= 1. Number of hash bits. Default 32.
        iterations: int >= 0. Iterations of k-means. Default 10.
        dropout: float in [0, 1). Dropout rate of the attention weights; shared by the members of a cluster.
        seed: int or None. Seed of the planes, which are non-trainable weights, and of the dropout.

    Call arguments: see `Mechanism`. Bidirectional self- and cross-attention (a mean of queries depends on later
    ones); padded queries are in no cluster; positions that rotate queries and keys.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: a call with causality, a cache, scores, an `attention_mask`, or a position that adds to the scores.

    Example: with one cluster, all queries have the same context.

    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(1, 3, 1, 2)
    >>> y = np.array(ClusteredAttention(num_clusters=1)(x, x, x))
    >>> bool(np.all(y == y[:, :1]))
    True

    Reference: Vyas et al., Fast Transformers with Clustered Attention, arXiv 2007.04825, section 3.2. Deviations from the
    authors' code: planes are drawn once, and k-means starts from equally spaced tokens.
    """

    def attend_clusters(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        clusters: Tensor,
        key_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Returns the context `(B, T, N, H_value)` for given clusters, int `(B, N, T)`; C means no cluster."""
        members = _members(clusters, self.num_clusters)
        visibility = Visibility(key_mask=key_mask)
        of_clusters = self.softmax(_means(query, members), key, value, visibility=visibility, training=training)
        return _to_members(of_clusters, members, query.shape[2])


@serializable
class ImprovedClusteredAttention(_Clustered):
    """Clustered attention with exact weights for the top keys of each cluster.

    With the attention weights A^c of cluster c, its `top_k` keys of largest weight `T_c` and `m_c = Σ_{j ∈ T_c} A^c_j`,

        y_i = m_c Σ_{j ∈ T_c} softmax_{j ∈ T_c}(q_i · k_j / √H) v_j + Σ_{j ∉ T_c} A^c_j v_j

    With `top_k` = S it is full attention. Time and memory grow as those of `ClusteredAttention` do, and time with
    `(T + C · b) · top_k · H` for blocks of b queries.

    Args:
        num_clusters: int >= 1. C. Default 100.
        bits: int >= 1. Number of hash bits. Default 32.
        iterations: int >= 0. Iterations of k-means. Default 10.
        top_k: int >= 1. Default 32.
        block_size: int >= 1. Queries of one cluster that are computed together; affects the cost only. Default 32.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the planes, which are non-trainable weights, and of the dropout.

    Call arguments: as for `ClusteredAttention`.

    Returns:
        The context `(B, T, N, H_value)`.

    Raises:
        ValueError: as for `ClusteredAttention`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import SoftmaxAttention
    >>> x = np.arange(6.0).reshape(1, 3, 1, 2)
    >>> y = ImprovedClusteredAttention(num_clusters=2, top_k=3)(x, x, x)
    >>> bool(np.allclose(y, SoftmaxAttention()(x, x, x), atol=1e-5))
    True

    Reference: Vyas et al., arXiv 2007.04825, section 3.3. For clusters, see `ClusteredAttention`.
    """

    def __init__(
        self,
        num_clusters: int = 100,
        bits: Tensor = 32,
        iterations: int = 10,
        top_k: int = 32,
        block_size: int = 32,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_clusters, bits, iterations, dropout, seed, **kwargs)
        self.top_k = positive("top_k", top_k)
        self.block_size = positive("block_size", block_size)

    def attend_clusters(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        clusters: Tensor,
        key_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Returns the context `(B, T, N, H_value)` for given clusters, int `(B, N, T)`; C means no cluster."""
        members, heads = _members(clusters, self.num_clusters), query.shape[2]
        key, value, key_mask = _at_least(self.top_k, key, value, key_mask)
        visibility, means = Visibility(key_mask=key_mask), _means(query, members)
        _, weights = self.softmax(means, key, value, visibility=visibility, return_attention_scores=True)
        mass, index = ops.top_k(weights, self.top_k)  # (B, N, C, top_k)
        rest = self.softmax.drop(_without(weights, index), training)
        shared = _to_members(weighted_sum(rest, value), members, heads)
        blocks = ClusterBlocks.of_members(members, self.block_size)
        seen = None
        if key_mask is not None:
            seen = _take_heads(ops.expand_dims(ops.expand_dims(key_mask, 2), 3), index)
            seen = self._best(blocks, seen)[:, :, 0, 0]
        best = (self._best(blocks, _take_heads(x, index)) for x in (key, value))
        queries = ops.expand_dims(blocks.gather(_heads_first(query)), 2)
        own = self.softmax(queries, *best, visibility=Visibility(key_mask=seen), training=training)
        mass = blocks.of_clusters(ops.reshape(ops.sum(mass, axis=-1), (-1, self.num_clusters, 1)))
        own = blocks.scatter(ops.squeeze(own, 2) * ops.expand_dims(mass, 2))
        return shared + _tokens_first(own * ops.sum(ops.cast(members, own.dtype), axis=2, keepdims=True), heads)

    def _best(self, blocks: Tensor, taken):
        """`(B · N, C · top_k, H)` to the keys of each block, `(B · N · n, top_k, 1, H)`."""
        width = taken.shape[2]
        taken = blocks.of_clusters(ops.reshape(taken, (-1, self.num_clusters, self.top_k * width)))
        return ops.reshape(taken, (-1, self.top_k, 1, width))

    def get_config(self) -> Config:
        return {**super().get_config(), "top_k": self.top_k, "block_size": self.block_size}


def _members(clusters: Tensor, num_clusters: int):
    """One-hot `(B · N, T, C)` of clusters `(B, N, T)`."""
    return members_of(ops.reshape(clusters, (-1, ops.shape(clusters)[2])), num_clusters)


def _means(query: Tensor, members: Tensor):
    """The mean query of each cluster, `(B, C, N, H)`; zeros where it is empty."""
    members = ops.cast(members, query.dtype)
    # Means, not sums, which could overflow in half precision.
    shares = members / ops.maximum(ops.sum(members, axis=1, keepdims=True), 1)
    means = ops.matmul(ops.transpose(shares, (0, 2, 1)), _heads_first(query))
    return _tokens_first(means, query.shape[2])


def _to_members(x: Tensor, members: Tensor, heads: int):
    """The values of clusters `(B, C, N, H)`, gathered for their members: `(B, T, N, H)`."""
    return _tokens_first(ops.matmul(ops.cast(members, x.dtype), _heads_first(x)), heads)


def _without(weights: Tensor, index: Tensor):
    """The weights `(B, N, C, S)` with zeros at `index`, `(B, N, C, top_k)`."""
    length = ops.shape(weights)[3]
    flat = ops.reshape(weights, (-1,))
    rows = ops.shape(index)[0] * index.shape[1] * index.shape[2]
    first = ops.reshape(ops.arange(rows, dtype="int32") * length, (-1, 1))
    indices = ops.reshape(first + ops.reshape(ops.cast(index, "int32"), (-1, index.shape[3])), (-1, 1))
    flat = ops.scatter_update(flat, indices, ops.zeros((rows * index.shape[3],), dtype=flat.dtype))
    return ops.reshape(flat, ops.shape(weights))


def _take_heads(x: Tensor, index: Tensor):
    """`(B, S, K, H)` at `index`, `(B, N, C, top_k)`: `(B · N, C · top_k, H)`."""
    length, key_heads, heads = ops.shape(x)[1], x.shape[2], index.shape[1]
    row = ops.reshape(ops.arange(ops.shape(index)[0] * heads, dtype="int32"), (-1, 1))
    batch, head = row // heads, row % heads // (heads // key_heads)
    index = ops.reshape(ops.cast(index, "int32"), (-1, index.shape[2] * index.shape[3]))
    return ops.take(ops.reshape(x, (-1, x.shape[3])), (batch * length + index) * key_heads + head, axis=0)


def _at_least(count: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None):
    """Pads keys with masked ones if there may be fewer than `count`."""
    length = key.shape[1]
    if length is not None and length >= count:
        return key, value, key_mask
    missing = count if length is None else count - length
    if key_mask is None:
        key_mask = ops.ones(ops.shape(key)[:2], dtype="bool")
    return tuple(pad_length(x, 0, missing) for x in (key, value, ops.cast(key_mask, "bool")))


def _heads_first(x: Tensor):
    """`(B, T, N, H)` to `(B · N, T, H)`."""
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, ops.shape(x)[1], x.shape[3]))


def _tokens_first(x: Tensor, heads: int):
    """`(B · N, T, H)` to `(B, T, N, H)`."""
    return ops.transpose(ops.reshape(x, (-1, heads, *ops.shape(x)[1:])), (0, 2, 1, 3))
