"""Linear attention with kernel feature maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.kernel_features.feature_maps import FEATURE_MAPS, FeatureMap
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.partition.chunks import causal_unnormalized_attention, unnormalized_attention
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class LinearAttention(Mechanism):
    """Linear attention, `y_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / (φ(q_i) · Σ_j φ(k_j) + epsilon)`, with causality over `j <= i`.

    The sums over keys are computed once for all queries: with M features of a head (M = H for most maps), time grows with
    `T · M · H` and memory with `T · M`. With causality, the sequence is split into chunks of C, and sums are carried from
    chunk to chunk: time `T · (C + M) · H`, memory `T · C + T / C · M · H`. All sums are in float32 under every dtype policy.

    Args:
        feature_map: φ: a name in `FEATURE_MAPS` ("elu", "relu", "softmax", "square", "taylor"), or a `FeatureMap`.
        epsilon: float > 0. Added to the normalizer to avoid division by zero: a query without keys has a zero context.
        chunk_size: int >= 1. C, with causality; affects the cost only.
        dropout: float in [0, 1). Dropout rate of keys: in training, their values are zero for all queries, since there are
            no weights of query-key pairs.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, bidirectional cross-attention;
        positions that rotate queries and keys. The cache is the sums, "state" `(B, K, M, H_value + 1)` in float32, whose
        last column is the sum of the features, independent of `max_length`.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `chunk_size` below 1; a call with scores, an `attention_mask`, a window, a position that adds to scores,
            or causality between sequences of different lengths.

    Example:

    >>> import numpy as np
    >>> x = np.zeros((1, 3, 1, 2))
    >>> values = np.array([0.0, 2.0, 7.0]).reshape(1, 3, 1, 1)
    >>> LinearAttention()(x, x, values).numpy().round(3).ravel().tolist()  # Equal keys: the mean of the values.
    [3.0, 3.0, 3.0]

    Reference: Katharopoulos et al., Transformers are RNNs, arXiv 2006.16236, equations 4-12 and 16-20. Deviations: chunks
    instead of one step per token; a rotary position rotates q and k before φ. RoFormer (arXiv 2104.09864, equation 19)
    rotates the features, which can make weights negative.
    """

    supports = frozenset({"causal", "bidirectional", "cross", "cache"})
    cache_is_rewindable = False

    def __init__(
        self,
        feature_map: str | Config | FeatureMap = "elu",
        epsilon: float = 1e-6,
        chunk_size: int = 128,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.feature_map = resolve(feature_map, FEATURE_MAPS, FeatureMap, argument="feature_map")
        self.epsilon = epsilon
        self.chunk_size = positive("chunk_size", chunk_size)
        self.dropout = dropout
        self.seed = seed
        noise_shape = (None, None, None, 1)
        self._dropout_layer = Dropout(dropout, noise_shape=noise_shape, seed=seed, dtype="float32")

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        build_once(self.feature_map, query_shape)

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
        operands = self._operands(query, key, value, visibility, visibility.key_mask, training)
        if visibility.causal:
            _check_lengths(query, key)
            query, key, values_and_ones = _with_ones(*operands)
            sums, totals = _split(causal_unnormalized_attention(query, key, values_and_ones, self.chunk_size)[0])
        else:
            sums, totals = unnormalized_attention(*operands)
        return self._normalize(sums, totals, visibility.query_mask, value.dtype)

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        """Returns empty sums. They are float32, independent of `dtype`, as they grow with the sequence."""
        shape = (batch_size, num_heads, self.feature_map.features(key_dim), value_dim + 1)
        return {"state": ops.zeros(shape, dtype="float32")}

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
        operands = self._operands(query, key, value, visibility, visibility.query_mask, training)
        query, key, values_and_ones = _with_ones(*operands)
        joined, state = causal_unnormalized_attention(query, key, values_and_ones, self.chunk_size, cache["state"])
        sums, totals = _split(joined)
        return self._normalize(sums, totals, visibility.query_mask, value.dtype), {"state": state}

    def _operands(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        key_mask: Tensor | None,
        training: bool | None,
    ):
        """Features of queries and keys, zeros for False keys, and values; all float32."""
        query, key, value = (ops.cast(x, "float32") for x in (query, key, value))
        query = self.feature_map.map_query(query)
        key = self.feature_map.map_key(key, key_mask, visibility.causal)
        key = key if key_mask is None else key * _per_token(key_mask)
        return query, key, self._dropout_layer(value, training=training)

    def _normalize(self, sums: Tensor, totals: Tensor, query_mask: Tensor | None, dtype: DType) -> Tensor:
        factors = 1.0 / (totals + self.epsilon)  # (B, T, N, 1): a product has a cheaper gradient than a division.
        factors = factors if query_mask is None else factors * _per_token(query_mask)
        return ops.cast(sums * factors, dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "feature_map": serialize(self.feature_map),
            "epsilon": self.epsilon,
            "chunk_size": self.chunk_size,
            "dropout": self.dropout,
            "seed": self.seed,
        }


def _with_ones(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Appends a column of ones to the values, whose sum is the normalizer."""
    return query, key, ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)


def _split(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Splits sums into those of values and those of features."""
    return ops.split(sums, [sums.shape[-1] - 1], axis=-1)


def _per_token(mask: Tensor) -> Tensor:
    """`(B, T)` to float32 `(B, T, 1, 1)`."""
    return ops.expand_dims(ops.cast(mask, "float32"), (2, 3))


def _check_lengths(query: Tensor, key: Tensor) -> None:
    lengths = (query.shape[1], key.shape[1])
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            f"Causal linear attention supports self-attention only. Received: {lengths[0]} queries, {lengths[1]} keys."
        )
