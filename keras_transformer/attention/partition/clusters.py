"""Clustering of queries: hashes, k-means in Hamming space, and blocks of one cluster each.

In the shapes, C is the number of clusters, P the bits of a hash. A row is one head of one example.
"""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_transformer.utils.types import Tensor


def hash_bits(query: Tensor, planes: Tensor) -> Tensor:
    """Returns the signs of random projections of queries: float32 `(B · N, T, P)` of -1 and 1.

    Args:
        query: float `(B, T, N, H)`.
        planes: float `(P, H + 1)`: a normal and an offset each.
    """
    width = query.shape[3]
    rows = ops.cast(ops.stop_gradient(ops.transpose(query, (0, 2, 1, 3))), "float32")
    rows = ops.reshape(rows, (-1, ops.shape(query)[1], width))
    planes = ops.transpose(ops.convert_to_tensor(planes))
    sides = ops.matmul(rows, planes[:width]) + planes[width:]
    return ops.where(sides > 0, 1.0, -1.0)


def cluster_bits(bits: Tensor, seen: Tensor, num_clusters: int, iterations: int) -> Tensor:
    """Returns k-means clusters in Hamming space: int `(B · N, T)`.

    It starts from equally spaced tokens, so that padding has no influence.

    Args:
        bits: float32 `(B · N, T, P)` of -1 and 1.
        seen: float32 `(B · N, T)`: 0 for padding, whose cluster is C.
        num_clusters: int. C.
        iterations: int. Iterations of k-means.
    """
    counts = ops.cast(ops.sum(seen, axis=1, keepdims=True), "int32")
    starts = ops.arange(num_clusters, dtype="int32") * counts // num_clusters  # (B · N, C): the first tokens of each.
    ranks = ops.cast(ops.cumsum(seen, axis=1), "int32") - 1
    chosen = ops.cast(ops.equal(ops.expand_dims(starts, 2), ops.expand_dims(ranks, 1)), "float32")
    centers = ops.matmul(chosen * ops.expand_dims(seen, 1), bits)  # (B · N, C, P)
    for _ in range(iterations):
        members = _nearest(bits, centers) * ops.expand_dims(seen, 2)
        votes = ops.matmul(ops.transpose(members, (0, 2, 1)), bits)  # (B · N, C, P)
        # On a tie the center does not change, as in an empty cluster.
        centers = ops.where(ops.equal(votes, 0), centers, ops.sign(votes))
    clusters = ops.cast(_nearest(bits, centers), "int32") * ops.arange(num_clusters, dtype="int32")
    return ops.where(seen > 0.5, ops.sum(clusters, axis=2), num_clusters)


def members_of(clusters: Tensor, num_clusters: int) -> Tensor:
    """Returns clusters `(B, N, T)` one-hot: float32 `(B · N, T, C)`."""
    rows = ops.reshape(clusters, (-1, ops.shape(clusters)[2], 1))
    return ops.cast(ops.equal(rows, ops.reshape(ops.arange(num_clusters, dtype="int32"), (1, 1, -1))), "float32")


def _nearest(bits: Tensor, centers):
    """One-hot `(B · N, T, C)`: the center with most equal bits; the first of equals."""
    agreement = ops.matmul(bits, ops.transpose(centers, (0, 2, 1)))  # Whole numbers.
    num_clusters = centers.shape[1]
    agreement = agreement - ops.arange(num_clusters, dtype="float32") / (num_clusters + 1)
    return ops.cast(ops.equal(agreement, ops.max(agreement, axis=2, keepdims=True)), "float32")


@dataclasses.dataclass(frozen=True)
class ClusterBlocks:
    """Tokens sorted by cluster into blocks of one cluster each, so that a block reads shared data once.

    Attributes:
        rows_of_tokens: int `(B · N, T)`: the row of each token among all blocks; the last row is for tokens in no cluster.
        clusters: int `(B · N, n)`: the cluster of each block.
        size: int. Tokens of a block.
    """

    rows_of_tokens: Tensor
    clusters: Tensor
    size: int

    @classmethod
    def of_members(cls, members: Tensor, size: int) -> ClusterBlocks:
        """Blocks for members `(B · N, T, C)`: at most `ceil(T / size) + C` of them."""
        num_clusters, length = members.shape[2], ops.shape(members)[1]
        members = ops.cast(members, "int32")
        blocks = (ops.sum(members, axis=1) + size - 1) // size  # (B · N, C)
        ends = ops.cumsum(blocks, axis=1)
        ranks = ops.cumsum(members, axis=1) - 1
        first = ops.expand_dims((ends - blocks) * size, 1)
        count = (length + size - 1) // size + num_clusters
        inside = ops.sum(members, axis=2)
        rows_of_tokens = ops.sum(members * (first + ranks), axis=2) + (1 - inside) * (count * size)
        order = ops.reshape(ops.arange(count, dtype="int32"), (1, -1, 1))
        clusters = ops.sum(ops.cast(ops.expand_dims(ends, 1) <= order, "int32"), axis=2)
        return cls(rows_of_tokens, ops.minimum(clusters, num_clusters - 1), size)

    def gather(self, x: Tensor) -> Tensor:
        """`(B · N, T, H)` to blocks `(B · N · n, size, H)`, zeros where a block has fewer tokens."""
        rows, width = self._rows(), x.shape[2]
        index = ops.reshape(self._index(rows), (-1, 1))
        # One more row for those in no cluster; it is never read.
        flat = ops.scatter(index, ops.reshape(x, (-1, width)), (ops.shape(x)[0] * rows, width))
        flat = ops.reshape(flat, (-1, rows, width))[:, : rows - 1]
        return ops.reshape(flat, (-1, self.size, width))

    def scatter(self, blocks: Tensor) -> Tensor:
        """Blocks `(B · N · n, size, H)` back to `(B · N, T, H)`; undefined for tokens in no cluster."""
        rows, width = self._rows() - 1, blocks.shape[2]
        first = ops.expand_dims(ops.arange(ops.shape(self.rows_of_tokens)[0], dtype="int32") * rows, 1)
        index = first + ops.minimum(self.rows_of_tokens, rows - 1)
        return ops.take(ops.reshape(blocks, (-1, width)), index, axis=0)

    def of_clusters(self, x: Tensor) -> Tensor:
        """`(B · N, C, ...)` to `(B · N · n, ...)`: gathered for the cluster of each block."""
        num_clusters, rest = x.shape[1], x.shape[2:]
        first = ops.expand_dims(ops.arange(ops.shape(self.clusters)[0], dtype="int32") * num_clusters, 1)
        index = ops.reshape(first + self.clusters, (-1,))
        return ops.take(ops.reshape(x, (-1, *rest)), index, axis=0)

    def _rows(self):
        return ops.shape(self.clusters)[1] * self.size + 1

    def _index(self, rows: Tensor):
        return (
            ops.expand_dims(ops.arange(ops.shape(self.rows_of_tokens)[0], dtype="int32") * rows, 1)
            + self.rows_of_tokens
        )


def cluster_means(query: Tensor, members: Tensor) -> Tensor:
    """Returns the mean query of each cluster, `(B, C, N, H)`; zeros where it is empty."""
    members = ops.cast(members, query.dtype)
    # Means, not sums, which could overflow in half precision.
    shares = members / ops.maximum(ops.sum(members, axis=1, keepdims=True), 1)
    means = ops.matmul(ops.transpose(shares, (0, 2, 1)), rows_of_heads(query))
    return heads_of_rows(means, query.shape[2])


def to_members(x: Tensor, members: Tensor, heads: int) -> Tensor:
    """Returns the values of clusters `(B, C, N, H)`, gathered for their members: `(B, T, N, H)`."""
    return heads_of_rows(ops.matmul(ops.cast(members, x.dtype), rows_of_heads(x)), heads)


def rows_of_heads(x: Tensor) -> Tensor:
    """Reshapes `(B, T, N, H)` to `(B · N, T, H)`."""
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, ops.shape(x)[1], x.shape[3]))


def heads_of_rows(x: Tensor, heads: int) -> Tensor:
    """Reshapes `(B · N, T, H)` to `(B, T, N, H)`."""
    return ops.transpose(ops.reshape(x, (-1, heads, *ops.shape(x)[1:])), (0, 2, 1, 3))
