"""Dilated sliding-window attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.sparse.local import LocalAttention
from keras_transformer.attention.partition.bands import pad_length
from keras_transformer.attention.partition.strides import StridedSubsequences
from keras_transformer.utils.serialization import serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class DilatedAttention(Mechanism):
    """Dilated sliding-window (atrous) attention to `window` keys on each side, `dilation` apart.

    `y_i = Σ_{j ≡ i mod dilation, |i - j| < window · dilation} softmax_j(scores(q_i, k_j) + bias_ij) v_j`. The
    subsequences of every `dilation`-th token are folded into the batch, for sliding-window attention in each: time and
    memory grow with `T · window`, independent of the dilation. The result equals that of masked dense attention.

    Args:
        window: int >= 1. Number of attended keys on each side, the query's own included.
        dilation: int >= 1. The distance between them; 1 is `LocalAttention`.
        block_size: int >= 1, or None for half the window. Affects the cost only.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions. The cache keeps the
    last `window · dilation` keys, independent of `max_length`; a single new token attends to every `dilation`-th of them.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: an argument below 1; a call with scores, an `attention_mask` or other keys than queries.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 5, 1, 2))
    >>> values = np.arange(5.0).reshape(1, 5, 1, 1)
    >>> DilatedAttention(window=2, dilation=2)(x, x, values).numpy().ravel().tolist()  # Keys 0 and 2 away.
    [1.0, 2.0, 2.0, 2.0, 3.0]

    Reference: Child et al., Sparse Transformers, arXiv 1904.10509; Beltagy et al., Longformer, arXiv 2004.05150, figure 2c.
    Deviation: the window of Longformer is the sum of both sides.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})
    cache_is_rewindable = False

    def __init__(
        self,
        window: int = 128,
        dilation: int = 2,
        block_size: int | None = None,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.window = positive("window", window)
        self.dilation = positive("dilation", dilation)
        self.block_size = block_size
        self.dropout = dropout
        self.seed = seed
        self.local = LocalAttention(window, block_size, scoring, dropout, seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self.local.build(query_shape, key_shape, value_shape)

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
        subsequences = StridedSubsequences(self.dilation)
        context = self.local.attend(
            subsequences.fold(query),
            subsequences.fold(key),
            subsequences.fold(value),
            subsequences.visibility(visibility, query),
            position,
            training=training,
        )
        return subsequences.unfold(context, ops.shape(query)[1])

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        return init_window_cache(batch_size, self.window * self.dilation, num_heads, key_dim, value_dim, dtype)

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
        visibility = dataclasses.replace(visibility, query_mask=None, attention_mask=None)
        options = {"position": position, "training": training}
        if self._is_short(query):
            return self._step(query, key, value, slots, visibility, options), cache
        # Queries are aligned with their keys; the outputs of past queries are dropped.
        slots = ops.broadcast_to(slots, ops.shape(key)[:2])
        visibility = dataclasses.replace(visibility, key_mask=slots >= 0, query_positions=slots, key_positions=slots)
        reach = self.window * self.dilation
        context = self.attend(pad_length(query, reach, 0), key, value, visibility, **options)
        return context[:, reach:], cache

    def _is_short(self, query: Tensor) -> bool:
        """Whether there are statically so few queries that a mask is cheaper."""
        return query.shape[1] is not None and query.shape[1] <= self.window

    def _step(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        slots: Tensor,
        visibility: Visibility,
        options: Mapping[str, object],
    ):
        """A few tokens attend to all cached keys with a mask, or one token to every `dilation`-th of them."""
        reach, length, mask = self.window * self.dilation, query.shape[1], None
        if length == 1:
            key, value, slots = (x[:, :: self.dilation] for x in (key, value, slots))
        else:
            apart = reach + np.arange(length)[:, None] - np.arange(reach + length)
            mask = ops.convert_to_tensor(apart % self.dilation == 0)
        visibility = dataclasses.replace(
            visibility, window=reach, key_mask=slots >= 0, key_slots=slots, key_positions=slots, attention_mask=mask
        )
        return self.local.softmax(query, key, value, visibility=visibility, **options)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "window": self.window,
            "dilation": self.dilation,
            "block_size": self.block_size,
            "scoring": serialize(self.local.softmax.scoring),
            "dropout": self.dropout,
            "seed": self.seed,
        }
