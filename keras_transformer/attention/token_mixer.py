"""Base class of token mixers that have their own projections."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_transformer.attention.arguments import check_shapes
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.masks import combine
from keras_transformer.attention.mechanism import check_no_key_mask, check_supported
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.utils.types import Cache, Outputs, Shape, Tensor


class TokenMixer(CachedLayer):
    """Base class of self-attention, convolutions and recurrences with the call of `MultiHeadAttention`.

    A subclass implements `mix` for whole sequences, `extend` for new tokens with a cache, and `init_cache`. It has
    `output_dense`, its last projection, and lists in `supports` what it takes into account. `call` raises an error for
    everything else, so that `mix` and `extend` receive only supported arguments.

    Attributes:
        supports: frozenset of str. See `Mechanism`.
        cache_is_rewindable: bool. Whether a cache can return to an earlier index. If not, `query_mask` marks padding among
            the new tokens, and padding is on the right.
        reads_values: bool. Whether `value` and `key` are read. If not, the tokens are `query`, and each mask without a cache
            is a mask of all of them.
        position: an `AttentionPosition`, or None.

    Call arguments:
        query: float `(B, T, D)`.
        value: the same tokens, or None.
        key: None, unless `reads_values`.
        query_mask, value_mask, key_mask: boolean `(B, T)`: False for padding, which has a zero context and no influence. If
            the cache is rewindable, value and key masks cover its slots.
        attention_mask: refused.
        positions: int `(T,)` or `(B, T)`, for the position. None for 0, 1, 2, ..., counted from `cache_index`.
        cache: dict as `init_cache` returns. Makes the mixer causal.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.
        use_causal_mask: bool. Defaults to False, or to True if the mixer is always causal.
        return_attention_scores: refused.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: an unsupported argument; a key mask with a cache that is not rewindable.
    """

    supports: frozenset[str] = frozenset({"causal", "bidirectional", "cache"})
    cache_is_rewindable: bool = False
    reads_values: bool = False
    position: Any = None

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        *,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        use_causal_mask: bool | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Outputs:
        inputs = MixerInputs(
            query=query,
            value=value,
            key=key,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            positions=positions,
            cache=cache,
            cache_index=cache_index,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return self.apply(inputs)

    def apply(self, inputs: MixerInputs) -> Outputs:
        """Returns what `call` returns for its arguments."""
        inputs = self._with_defaults(inputs)
        self.check(inputs)
        return self.mix(inputs) if inputs.cache is None else self.extend(inputs)

    def mix(self, inputs: MixerInputs) -> Outputs:
        """Returns the output `(B, T, D)` for whole sequences."""
        raise NotImplementedError

    def extend(self, inputs: MixerInputs) -> Outputs:
        """Returns the output `(B, T, D)` for new tokens, and the next cache."""
        raise NotImplementedError

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache for `max_length` tokens."""
        raise NotImplementedError

    def check(self, inputs: MixerInputs) -> None:
        """Raises `ValueError` for the first argument that the mixer does not support."""
        requested = {
            "cache": inputs.cache is not None,
            "causal": inputs.use_causal_mask,
            "bidirectional": not inputs.use_causal_mask,
            "cross": inputs.is_cross or (inputs.key is not None and not self.reads_values),
            "attention_mask": inputs.attention_mask is not None,
            "scores": inputs.return_attention_scores,
            **dict.fromkeys(() if self.position is None else self.position.needs, True),
        }
        check_supported(self, requested)
        check_no_key_mask(self, inputs.key_mask, inputs.cache)

    def _with_defaults(self, inputs: MixerInputs) -> MixerInputs:
        query_mask, key_mask = inputs.query_mask, combine(inputs.key_mask, inputs.value_mask)
        if inputs.cache is None and not self.reads_values:
            query_mask = key_mask = combine(query_mask, key_mask)
        causal = inputs.use_causal_mask
        if causal is None:
            causal = "bidirectional" not in self.supports
        return dataclasses.replace(
            inputs, query_mask=query_mask, key_mask=key_mask, use_causal_mask=causal or inputs.cache is not None
        )

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> Shape:
        return tuple(query_shape)

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        *,
        cache: Cache | None = None,
        **options: Any,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, Cache]:
        value_shape = query.shape if value is None else value.shape
        if value_shape[1] == query.shape[1]:
            check_shapes(query.shape, value_shape, value_shape if key is None else key.shape)
        return self._output_spec(query.shape, cache)


def zero_masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns `x`, `(B, T, ...)`, with zeros where the boolean `mask`, `(B, T)` or None, is False."""
    if mask is None:
        return x
    return x * ops.cast(ops.expand_dims(mask, tuple(range(2, len(x.shape)))), x.dtype)
