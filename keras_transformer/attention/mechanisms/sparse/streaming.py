"""StreamingLLM's attention: a sliding window and the first tokens, with positions inside the cache."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.cache.first_tokens import write_first
from keras_transformer.attention.masks import Visibility, combine, with_batch_axis
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.windows import DilatedWindow
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition

_SINKS = ("sink_keys", "sink_values")
_RECENT = ("recent_keys", "recent_values")
_NO_DILATION = (1,)


@serializable
class StreamingAttention(SoftmaxBasedMechanism):
    """Attention to keys fewer than `window` positions away and to the first `num_sinks` keys, the attention sinks.

    With causality, these are the last `window` keys and the sinks. Models attend to the first tokens whatever these are;
    without them, a sliding window does not continue the text of a model that was trained with full attention. Positions are
    those inside the cache: beyond `num_sinks + window` tokens, the sinks stay as far from each query as if the tokens
    between them and the window did not exist. So no distance is above `num_sinks + window`, for texts of any length. Time
    and memory grow with `T · (window + num_sinks)`.

    Args:
        window: int >= 2. Keys `window` or more positions away are masked, except sinks.
        num_sinks: int >= 0. Defaults to 4.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, positions that rotate queries and keys. The
    cache keeps `num_sinks + window - 1` keys before rotation, for any `max_length`; with it, positions are counted from the
    slots.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `window` below 2, or `num_sinks` below 0; a call with scores, an `attention_mask`, or other keys
            than queries.

    Example: three times the mean of the values that are seen.

    >>> import numpy as np
    >>> x, values = np.ones((1, 6, 1, 2)), np.arange(6.0).reshape(1, 6, 1, 1)
    >>> causal = Visibility.from_slots(np.arange(6), np.arange(6), causal=True)
    >>> context = StreamingAttention(window=2, num_sinks=1)(x, x, values, visibility=causal)
    >>> (context.numpy().ravel() * 3).round().tolist()
    [0.0, 2.0, 3.0, 5.0, 7.0, 9.0]

    Reference: Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453, section 3.2.
    Bidirectional attention is not in the paper.
    """

    supports = frozenset({"causal", "bidirectional", "cache"})
    cache_is_rewindable = False
    applies_rotation = True

    def __init__(
        self,
        window: int = 1020,
        num_sinks: int = 4,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        if window < 2 or num_sinks < 0:
            raise ValueError(
                f"window must be at least 2, and num_sinks at least 0. Received: window={window}, num_sinks={num_sinks}"
            )
        self.window = window
        self.num_sinks = num_sinks

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
        batch, count = ops.shape(key)[0], self.num_sinks
        slots, positions = (with_batch_axis(x, batch) for x in (visibility.key_slots, visibility.key_positions))
        visible = dataclasses.replace(visibility, key_mask=combine(visibility.key_mask, slots >= count))
        rotated = _rotated(position, query, key, visibility.query_positions, visibility.key_positions)
        parts = [self._windows(training).part(*rotated, value, visible)]
        if count:
            mask = None if visibility.key_mask is None else visibility.key_mask[:, :count]
            first = {"key_slots": slots[:, :count], "key_positions": positions[:, :count], "key_mask": mask}
            visible = dataclasses.replace(visibility, **first)
            parts.append(self._to_sinks(query, key[:, :count], value[:, :count], visible, position, training))
        return merge_parts(parts)

    def _windows(self, training: bool | None) -> DilatedWindow:
        return DilatedWindow(self.softmax, self.window, _NO_DILATION, training=training)

    def _to_sinks(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        training: bool | None,
    ) -> PartialAttention:
        """Attention to the sinks; a query is at most at the last position inside the cache."""
        nearest = ops.minimum(visibility.query_positions, self._last_position)
        query, key = _rotated(position, query, key, nearest, visibility.key_positions)
        return partial_attention(self.softmax, query, key, value, visibility, training=training)

    @property
    def _last_position(self) -> int:
        return self.num_sinks + self.window - 1

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        cache = init_window_cache(batch_size, self.window - 1, num_heads, key_dim, value_dim, dtype)
        if self.num_sinks:
            for name, width in zip(_SINKS, (key_dim, value_dim), strict=True):
                cache[name] = ops.zeros((batch_size, num_heads, self.num_sinks, width), dtype=dtype)
        return cache

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
        recent = {name: cache[name] for name in _RECENT}
        keys, values, slots, following = extend_window_cache(recent, key, value, cache_index, visibility.query_mask)
        query_slots = visibility.query_slots
        # Distances are those of the slots. Small positions have exact angles in texts of any length.
        start = ops.maximum(query_slots[:, :1] - self._last_position, 0)
        rotated = _rotated(position, query, keys, query_slots - start, slots - start)
        slots = with_batch_axis(slots, ops.shape(keys)[0])
        visible = dataclasses.replace(
            visibility, key_mask=slots >= self.num_sinks, key_slots=slots, key_positions=slots
        )
        parts = [self._windows(training).new_part(*rotated, values, visible)]
        if self.num_sinks:
            new: dict[str, Tensor] = dict(zip(_SINKS, (key, value), strict=True))
            following |= write_first(cache, new, query_slots, visibility.query_mask)
            keys, values = (ops.cast(ops.transpose(following[name], (0, 2, 1, 3)), key.dtype) for name in _SINKS)
            first = ops.expand_dims(ops.arange(self.num_sinks, dtype="int32"), 0)
            visible = dataclasses.replace(visibility, key_slots=first, key_positions=first, query_positions=query_slots)
            parts.append(self._to_sinks(query, keys, values, visible, position, training))
        return merge_parts(parts), following

    def get_config(self) -> Config:
        return {**super().get_config(), "window": self.window, "num_sinks": self.num_sinks}


def _rotated(
    position: AttentionPosition | None, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
) -> tuple[Tensor, Tensor]:
    if position is None:
        return query, key
    return position.rotate(query, key, query_positions, key_positions)
