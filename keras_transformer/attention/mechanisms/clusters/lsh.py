"""LSH attention (Reformer)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import check_key_mask, init_dense_cache, update_dense_cache
from keras_transformer.attention.masks import Visibility, causal_mask, with_batch_axis
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.partition.bands import take_rows
from keras_transformer.attention.partition.bucket_masks import (
    SELF_BIAS,
    across_buckets,
    latest_of_buckets,
    within_buckets,
)
from keras_transformer.attention.partition.sorted_chunks import SortedChunks
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


_EPSILON = 1e-6
# Up to this many new tokens attend to the whole cache; for more, it is sorted.
_MAX_DENSE_QUERIES = 16


@serializable
class LSHAttention(Mechanism):
    """LSH attention: softmax attention among tokens of equal locality-sensitive hash, in several rounds.

    Keys are the queries, normalized to unit length: the scores are `q_i · q_j / |q_j|`, with -1e5 added at j = i. Round r
    hashes `h_r(x) = argmax [x R_r; -x R_r]` with random rotations R_r of `num_buckets / 2` columns, sorts tokens by bucket
    and position, and splits them into chunks of c = `chunk_length`. A chunk attends to itself and to chunks before and after
    it, by default to one before it:

        y_i = Σ_r (Z_i^r / Σ_s Z_i^s) Σ_{j ∈ P_i^r} softmax_j(scores_ij) v_j,   Z_i^r = Σ_{j ∈ P_i^r} exp(scores_ij)

    P_i^r are the tokens of i's bucket in these chunks; with causality, i and the `chunks_before · c` tokens before it in its
    bucket, so that later tokens have no influence. With `attend_across_buckets`, they are all tokens of the chunks, with
    causality those up to i. Time grows with `T · R · H · (c + num_buckets) + R · T log T`, memory with
    `T · R · (c + num_buckets + H)`.

    Args:
        num_buckets: even int >= 2. Default 64; with about `2T / chunk_length`, a bucket has half a chunk of tokens. Or a
            sequence of even ints, whose product is the number of buckets: a bucket is then the combination of one bucket
            from each factor, which needs fewer rotations.
        chunk_length: int >= 1. Default 64.
        num_rounds: int >= 1. R. Default 4.
        attend_across_buckets: bool. Whether to ignore buckets within the chunks, as the reference implementations do. The
            attended past tokens then depend on the chunk boundaries and so on later tokens: no cache. Default False.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the non-trainable rotations and of the dropout.
        chunks_before: int >= 0. Number of attended chunks before a token's own. Default 1.
        chunks_after: int >= 0. Number of attended chunks after it; none with causality. Default 0.

    Call arguments: see `Mechanism`. The key is ignored: `MultiHeadAttention` has no projection for it. The context of a
    token whose key is masked is zero. Causal and bidirectional self-attention; positions that rotate queries and keys by the
    same angle ("rotary", not "xpos"). The cache keeps all tokens and their buckets; a few new tokens attend to all of it,
    many sort it.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: an odd `num_buckets`; negative numbers of chunks; fewer key/value heads than query heads; a call with
            scores, an `attention_mask`, other keys than queries, a position that adds to the scores, or a cache with
            `attend_across_buckets`.

    Export: all three formats; `num_buckets · T` stays below 2^31.

    Example: all tokens are in one chunk and one bucket, where a token attends to the others.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 1, 2))
    >>> values = np.array([1.0, 2.0, 6.0]).reshape(1, 3, 1, 1)
    >>> LSHAttention(num_buckets=2, seed=1)(x, x, values).numpy().ravel().tolist()
    [4.0, 3.5, 1.5]

    Reference: Kitaev et al., Reformer, arXiv 2001.04451, section 2. Deviations: as in Hugging Face's `LSHSelfAttention`, a
    pair in the same bucket in several rounds counts in each (the paper divides by their number, equation 8), and scores have
    no further factor `1/√H`; causality is exact within buckets.
    """

    supports = frozenset({"causal", "bidirectional", "cache"})
    shares_key = True

    def __init__(
        self,
        num_buckets: int | Sequence[int] = 64,
        chunk_length: int = 64,
        num_rounds: int = 4,
        attend_across_buckets: bool = False,
        dropout: float = 0.0,
        seed: int | None = None,
        chunks_before: int = 1,
        chunks_after: int = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if min(chunks_before, chunks_after) < 0:
            raise ValueError(
                f"chunks_before and chunks_after must be at least 0. Received: {chunks_before}, {chunks_after}"
            )
        self.bucket_factors = tuple(num_buckets) if isinstance(num_buckets, Sequence) else (num_buckets,)
        if not self.bucket_factors or any(positive("num_buckets", factor) % 2 for factor in self.bucket_factors):
            raise ValueError(f"num_buckets must be even: each rotation has two sides. Received: {num_buckets}")
        self.num_buckets = math.prod(self.bucket_factors)
        self.chunk_length = positive("chunk_length", chunk_length)
        self.num_rounds = positive("num_rounds", num_rounds)
        self.attend_across_buckets = attend_across_buckets
        if attend_across_buckets:
            self.supports = self.supports - {"cache"}
        self.dropout = dropout
        self.seed = seed
        self.chunks_before = chunks_before
        self.chunks_after = chunks_after
        self.softmax = SoftmaxAttention("dot", dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        heads, width = query_shape[2:]
        if value_shape[2] != heads:
            raise ValueError(
                f"LSHAttention uses its queries as keys, so values must have the same number of heads. Received: "
                f"{value_shape[2]} heads of values and {heads} of queries. Omit num_key_value_heads."
            )
        self.softmax.build(query_shape, key_shape, value_shape)
        self.rotations = self.add_weight(
            name="rotations",
            shape=(heads, width, self.num_rounds * (sum(self.bucket_factors) // 2)),
            initializer=keras.initializers.RandomNormal(stddev=1.0, seed=self.seed),
            trainable=False,
            autocast=False,
        )

    def buckets(self, query: Tensor) -> Tensor:
        """Returns the bucket of each token in each round, int `(B, T, N, R)`, for a query `(B, T, N, H)`."""
        heads, length = query.shape[2], ops.shape(query)[1]
        query = ops.cast(ops.stop_gradient(ops.transpose(query, (0, 2, 1, 3))), "float32")
        sides = shared_matmul(query, ops.convert_to_tensor(self.rotations))
        sides = ops.reshape(sides, (-1, length * self.num_rounds, sum(self.bucket_factors) // 2))
        buckets, start, stride = 0, 0, 1
        for factor in self.bucket_factors:
            own = sides[:, :, start : start + factor // 2]
            # top_k instead of argmax, which Keras exports to neither TFLite nor ONNX.
            _, largest = ops.top_k(ops.concatenate([own, -own], axis=-1), 1)
            buckets = buckets + ops.cast(largest, "int32") * stride
            start, stride = start + factor // 2, stride * factor
        buckets = ops.reshape(buckets, (-1, heads, length, self.num_rounds))
        return ops.transpose(buckets, (0, 2, 1, 3))

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
        return self._attend_sorted(query, value, self.buckets(query), visibility, training)

    def _attend_sorted(
        self, query: Tensor, value: Tensor, buckets: Tensor, visibility: Visibility, training: bool | None
    ):
        tokens = SortedChunks.of_buckets(buckets, visibility.key_mask, self.chunk_length, self.num_buckets)
        wraps, size = self.attend_across_buckets, self.chunk_length
        before, after = self.chunks_before, 0 if visibility.causal else self.chunks_after
        query, value = tokens.gather(query), tokens.with_neighbors(tokens.gather(value), before, after, wraps)
        key = tokens.with_neighbors(_unit(query), before, after, wraps)
        mask, bias = (across_buckets if wraps else within_buckets)(tokens, visibility.causal, before, after)
        attended = (before + 1 + after) * size
        part = partial_attention(
            self.softmax,
            ops.reshape(query, (-1, size, 1, query.shape[3])),
            ops.reshape(key, (-1, attended, 1, key.shape[3])),
            ops.reshape(value, (-1, attended, 1, value.shape[3])),
            Visibility(attention_mask=mask),
            bias=bias,
            training=training,
        )
        rounds = zip(*(tokens.scatter(x) for x in part), strict=True)
        context = merge_parts([PartialAttention(*each) for each in rounds])
        if visibility.query_mask is None:
            return context
        return context * ops.cast(ops.expand_dims(ops.expand_dims(visibility.query_mask, 2), 3), context.dtype)

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        cache = init_dense_cache(batch_size, max_length, num_heads, key_dim, value_dim, dtype)
        return {**cache, "buckets": ops.zeros((batch_size, num_heads, max_length, self.num_rounds), dtype="int32")}

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor | None,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        training: bool | None = None,
        **options: Any,
    ) -> tuple[Tensor, Cache]:
        check_key_mask(cache, visibility.key_mask)
        buckets = self.buckets(query)
        following = update_dense_cache({name: cache[name] for name in ("key", "value")}, query, value, cache_index)
        hashes = {"key": cache["buckets"], "value": cache["buckets"]}
        following["buckets"] = update_dense_cache(hashes, buckets, buckets, cache_index)["key"]
        keys, values, all_buckets = (
            ops.transpose(following[name], (0, 2, 1, 3)) for name in ("key", "value", "buckets")
        )
        if query.shape[1] is not None and query.shape[1] <= _MAX_DENSE_QUERIES:
            return self._attend_few(query, keys, values, buckets, all_buckets, visibility, training), following
        batch, length = ops.shape(query)[0], ops.shape(query)[1]
        slots = with_batch_axis(visibility.query_slots, batch)
        written = ops.expand_dims(ops.arange(ops.shape(keys)[1], dtype="int32"), 0) <= slots[:, -1:]
        key_mask = written if visibility.key_mask is None else ops.logical_and(written, visibility.key_mask)
        whole = dataclasses.replace(visibility, query_mask=None, key_mask=key_mask)
        context = self._attend_sorted(keys, values, all_buckets, whole, training)
        return take_rows(context, slots[:, :1], length), following

    def _attend_few(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        buckets: Tensor,
        all_buckets: Tensor,
        visibility: Visibility,
        training: bool | None,
    ):
        """Attention of new queries to all tokens in the cache; the rounds are concatenated along the length."""
        slots = ops.arange(ops.shape(keys)[1], dtype="int32")
        causal = causal_mask(visibility.query_slots, slots)
        if visibility.key_mask is not None:
            key_mask = ops.expand_dims(ops.expand_dims(ops.cast(visibility.key_mask, "bool"), 1), 1)
            causal = ops.logical_and(causal, key_mask)
        query_slots = ops.expand_dims(
            ops.expand_dims(with_batch_axis(visibility.query_slots, ops.shape(query)[0]), 1), 3
        )
        bias = ops.where(ops.equal(query_slots, ops.reshape(slots, (1, 1, 1, -1))), SELF_BIAS, 0.0)
        visible = Visibility(
            attention_mask=latest_of_buckets(buckets, all_buckets, causal, self.chunk_length * self.chunks_before)
        )
        queries = ops.concatenate([query] * self.num_rounds, axis=1)
        bias = ops.concatenate([bias] * self.num_rounds, axis=2)
        part = partial_attention(self.softmax, queries, _unit(keys), values, visible, bias=bias, training=training)
        length = ops.shape(query)[1]
        return merge_parts(
            [PartialAttention(*(x[:, i * length : (i + 1) * length] for x in part)) for i in range(self.num_rounds)]
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_buckets": self.bucket_factors if len(self.bucket_factors) > 1 else self.num_buckets,
            "chunk_length": self.chunk_length,
            "num_rounds": self.num_rounds,
            "attend_across_buckets": self.attend_across_buckets,
            "dropout": self.dropout,
            "seed": self.seed,
            "chunks_before": self.chunks_before,
            "chunks_after": self.chunks_after,
        }


def _unit(x: Tensor):
    """Normalizes vectors to unit length."""
    squares = ops.mean(ops.square(ops.cast(x, "float32")), axis=-1, keepdims=True)
    return x * ops.cast(ops.rsqrt(squares + _EPSILON) * x.shape[-1] ** -0.5, x.dtype)
