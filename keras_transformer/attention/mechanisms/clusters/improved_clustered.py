"""Improved clustered attention."""

from __future__ import annotations

from typing import Unpack

from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility, masked_bias
from keras_transformer.attention.mechanism import weighted_sum
from keras_transformer.attention.mechanisms.clusters.cluster_based import ClusterBasedMechanism
from keras_transformer.attention.partition.bands import pad_length
from keras_transformer.attention.partition.clusters import (
    ClusterBlocks,
    cluster_means,
    heads_of_rows,
    members_of,
    rows_of_heads,
    to_members,
)
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class ImprovedClusteredAttention(ClusterBasedMechanism):
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
        bits: int = 32,
        iterations: int = 10,
        top_k: int = 32,
        block_size: int = 32,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
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
        members, heads = members_of(clusters, self.num_clusters), query.shape[2]
        key, value, key_mask = _at_least(self.top_k, key, value, key_mask)
        scores, weights = self._of_means(cluster_means(query, members), key, key_mask)
        _, index = ops.top_k(scores, self.top_k)  # (B, N, C, top_k). Small weights are equal: 0.
        mass, rest = _split(ops.cast(weights, value.dtype), index)
        rest = self.softmax.drop(rest, training)
        shared = to_members(weighted_sum(rest, value), members, heads)
        blocks = ClusterBlocks.of_members(members, self.block_size)
        seen = None
        if key_mask is not None:
            seen = _take_heads(ops.expand_dims(ops.expand_dims(key_mask, 2), 3), index)
            seen = self._best(blocks, seen)[:, :, 0, 0]
        best = (self._best(blocks, _take_heads(x, index)) for x in (key, value))
        queries = ops.expand_dims(blocks.gather(rows_of_heads(query)), 2)
        own = self.softmax(queries, *best, visibility=Visibility(key_mask=seen), training=training)
        mass = blocks.of_clusters(ops.reshape(mass, (-1, self.num_clusters, 1)))
        own = blocks.scatter(ops.squeeze(own, 2) * ops.expand_dims(mass, 2))
        return shared + heads_of_rows(own * ops.sum(ops.cast(members, own.dtype), axis=2, keepdims=True), heads)

    def _of_means(self, means: Tensor, key: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The scores of keys for the mean queries, and the weights, both float32 `(B, N, C, S)`."""
        scores = ops.cast(self.softmax.scoring(means, key), "float32")
        if key_mask is None:
            return scores, ops.softmax(scores, axis=-1)
        seen = Visibility(key_mask=key_mask).dense()
        scores = scores + masked_bias(seen, None)
        return scores, ops.softmax(scores, axis=-1) * ops.cast(seen, "float32")

    def _best(self, blocks, taken):
        """`(B · N, C · top_k, H)` to the keys of each block, `(B · N · n, top_k, 1, H)`."""
        width = taken.shape[2]
        taken = blocks.of_clusters(ops.reshape(taken, (-1, self.num_clusters, self.top_k * width)))
        return ops.reshape(taken, (-1, self.top_k, 1, width))

    def get_config(self) -> Config:
        return {**super().get_config(), "top_k": self.top_k, "block_size": self.block_size}


def _split(weights: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The sums `(B, N, C)` of weights `(B, N, C, S)` at `index`, `(B, N, C, top_k)`, and the weights with zeros there."""
    length = ops.shape(weights)[3]
    flat = ops.reshape(weights, (-1,))
    rows = ops.shape(index)[0] * index.shape[1] * index.shape[2]
    first = ops.reshape(ops.arange(rows, dtype="int32") * length, (-1, 1))
    indices = ops.reshape(first + ops.reshape(ops.cast(index, "int32"), (-1, index.shape[3])), (-1,))
    mass = ops.sum(ops.reshape(ops.take(flat, indices, axis=0), ops.shape(index)), axis=-1)
    zeros = ops.zeros((rows * index.shape[3],), dtype=flat.dtype)
    rest = ops.scatter_update(flat, ops.expand_dims(indices, 1), zeros)
    return mass, ops.reshape(rest, ops.shape(weights))


def _take_heads(x: Tensor, index: Tensor):
    """`(B, S, K, H)` at `index`, `(B, N, C, top_k)`: `(B · N, C · top_k, H)`."""
    length, key_heads, heads = ops.shape(x)[1], x.shape[2], index.shape[1]
    row = ops.reshape(ops.arange(ops.shape(index)[0] * heads, dtype="int32"), (-1, 1))
    batch, head = row // heads, row % heads // (heads // key_heads)
    index = ops.reshape(ops.cast(index, "int32"), (-1, index.shape[2] * index.shape[3]))
    return ops.take(ops.reshape(x, (-1, x.shape[3])), (batch * length + index) * key_heads + head, axis=0)


def _at_least(count: int, key: Tensor, value: Tensor, key_mask: Tensor | None):
    """Pads keys with masked ones if there may be fewer than `count`."""
    length = key.shape[1]
    if length is not None and length >= count:
        return key, value, key_mask
    missing = count if length is None else count - length
    if key_mask is None:
        key_mask = ops.ones(ops.shape(key)[:2], dtype="bool")
    return tuple(pad_length(x, 0, missing) for x in (key, value, ops.cast(key_mask, "bool")))
