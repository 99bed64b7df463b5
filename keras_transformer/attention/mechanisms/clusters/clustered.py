"""Clustered attention."""

from __future__ import annotations

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.clusters.cluster_based import ClusterBasedMechanism
from keras_transformer.attention.partition.clusters import cluster_means, members_of, to_members
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


@serializable
class ClusteredAttention(ClusterBasedMechanism):
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
        members = members_of(clusters, self.num_clusters)
        visibility = Visibility(key_mask=key_mask)
        of_clusters = self.softmax(cluster_means(query, members), key, value, visibility=visibility, training=training)
        return to_members(of_clusters, members, query.shape[2])
