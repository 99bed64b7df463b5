"""Sliding-window (local) attention."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.bands import Bands, pad_length
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class LocalAttention(SoftmaxBasedMechanism):
    """Sliding-window attention to keys fewer than `window` positions away; with causality, to the last `window` keys.

    `y_i = Σ_{|i - j| < window} softmax_j(scores(q_i, k_j) + bias_ij) v_j`. Queries are split into blocks, and a block
    attends to the blocks of keys within its window: time and memory grow with `T · (window + block_size)`. The result equals
    that of masked dense attention, for any length.

    Args:
        window: int >= 1. Keys `window` or more positions away are masked.
        block_size: int >= 1, or None for half the window. Affects the cost only.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.
        use_sinks: bool. Whether each head has a learned logit in its softmax; see `SoftmaxAttention`.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions. The cache keeps the
    last `window` keys, independent of `max_length`.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `window` or `block_size` below 1; a call with scores, an `attention_mask` or other keys than queries.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 5, 1, 2))
    >>> values = np.arange(5.0).reshape(1, 5, 1, 1)
    >>> LocalAttention(window=2)(x, x, values).numpy().ravel().tolist()  # The mean of each value and its neighbors.
    [0.5, 1.0, 2.0, 3.0, 3.5]

    Reference: Child et al., Sparse Transformers, arXiv 1904.10509, section 4.2 (the local half); Beltagy et al., Longformer,
    arXiv 2004.05150, figure 2b. Deviation: their window is the sum of both sides; here it is one side, as in
    `keras.layers.MultiHeadAttention(sliding_window=...)`.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})
    cache_is_rewindable = False

    def __init__(
        self,
        window: int = 128,
        block_size: int | None = None,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        use_sinks: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.softmax.use_sinks = use_sinks
        self.window = positive("window", window)
        self.block_size = None if block_size is None else positive("block_size", block_size)

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
        windowed = self._windowed(visibility)
        if self._is_short(query) or self.softmax.avoids_scores(query, key, value, windowed, position, training):
            options = {"position": position, "training": training}
            return self.softmax(query, key, value, visibility=windowed, **options)
        bands = Bands.of_window(self.window, self._block_size(), visibility.causal)
        context = self.softmax(
            bands.blocks(query),
            bands.neighbors(key),
            bands.neighbors(value),
            visibility=bands.visibility(windowed, query, key),
            position=position,
            training=training,
        )
        return bands.join(context, ops.shape(query)[1])

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        return init_window_cache(batch_size, self.window, num_heads, key_dim, value_dim, dtype)

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
        key, value, slots, cache = extend_window_cache(cache, key, value, cache_index, visibility.query_mask)
        visibility = dataclasses.replace(
            visibility, query_mask=None, key_mask=slots >= 0, key_slots=slots, key_positions=slots, attention_mask=None
        )
        if self._is_short(query):
            options = {"visibility": self._windowed(visibility), "position": position, "training": training}
            return self.softmax(query, key, value, **options), cache
        # Queries are aligned with their keys; the outputs of past queries are dropped.
        slots = ops.broadcast_to(slots, ops.shape(key)[:2])
        visibility = dataclasses.replace(visibility, key_mask=slots >= 0, query_slots=slots, query_positions=slots)
        context = self.attend(pad_length(query, self.window, 0), key, value, visibility, position, training=training)
        return context[:, self.window :], cache

    def _is_short(self, query: Tensor):
        """Whether there are statically so few queries that one dense block is cheaper."""
        return query.shape[1] is not None and query.shape[1] <= self.window

    def _windowed(self, visibility: Visibility):
        return dataclasses.replace(visibility, window=self.window)

    def _block_size(self):
        return self.block_size or (self.window + 1) // 2

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "window": self.window,
            "block_size": self.block_size,
            "use_sinks": self.softmax.use_sinks,
        }
