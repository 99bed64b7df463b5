"""Base class of attention mechanisms, and checks of supported arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import extend_dense_cache, init_dense_cache
from keras_transformer.attention.masks import Visibility
from keras_transformer.utils.types import Cache, Config, DType, Outputs, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# Capabilities of mechanisms, each with advice for the error message if it is not supported.
_ADVICE = {
    "causal": "it has no causal form: call it with use_causal_mask=False, in an encoder",
    "bidirectional": "it is always causal: call it with use_causal_mask=True, in a decoder",
    "cross": "queries and keys must be the same tokens: use it for self-attention",
    "attention_mask": "it computes no score matrix: pass padding as query_mask and value_mask, or use 'softmax'",
    "window": "it has no sliding_window: use mechanism='local'",
    "scores": "it computes no score matrix, so there are no scores to return",
    "cache": "it cannot process a sequence token by token",
    "bias": "it computes no scores to add a bias to: use a position that rotates queries and keys, such as 'rotary'",
    "query": "it computes no scores to add a bias to: use a position that rotates queries and keys, such as 'rotary'",
    "values": "it computes no attention weights: use a position that rotates queries and keys, such as 'rotary'",
}
ALL_CAPABILITIES = frozenset(_ADVICE)


class Mechanism(CachedLayer):
    """Base class of attention mechanisms, which map projected queries, keys and values to a context.

    A subclass implements `attend` and lists its capabilities in `supports`. Unsupported arguments raise an error before the
    computation. All mechanisms support padding (`query_mask`, `key_mask`). A mechanism that caches less than all
    keys overrides `init_cache` and `extend`, and sets `cache_is_rewindable` to False.

    Attributes:
        supports: frozenset of "causal", "bidirectional", "cross" (keys are other tokens than queries), "attention_mask",
            "window", "scores", "cache", and of what positions need: "bias", "query", "values".
        shares_key: bool. Whether queries serve as keys, without a key projection.
        shares_value: bool. Whether projected queries serve as values, before normalization and rotation.
        takes_segments: bool. Whether it reads `Visibility.segment_ids`; otherwise they become an attention mask.
        applies_rotation: bool. Whether it calls `position.rotate` itself, because it also reads queries and keys before
            rotation. If True, it receives queries and keys as projected.
        cache_is_rewindable: bool. Whether a cache can return to an earlier index. If not, `query_mask` marks padding among
            the new tokens.
        head_multiple: int. A divisor of the number of heads, and of that of key/value heads.

    Call arguments:
        query: float `(B, T, N, H)`.
        key: float `(B, S, K, H)`; N is a multiple of K.
        value: float `(B, S, K, H_value)`.
        visibility: `masks.Visibility`, or None if every query attends to every key.
        position: an `AttentionPosition`, or None. Query and key are already rotated, unless `applies_rotation`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row. Required with a cache.
        return_attention_scores: bool.

    Returns:
        The context `(B, T, N, H_value)`, or `(context, scores)` with scores `(B, N, T, S)`; with a cache,
        `(that, next_cache)`.

    Raises:
        ValueError: an unsupported argument.

    Example: the mean of all values.

    >>> import numpy as np
    >>> class MeanAttention(Mechanism):
    ...     supports = frozenset({"bidirectional", "cross"})
    ...     def attend(self, query, key, value, visibility, position=None, **options):
    ...         return ops.broadcast_to(ops.mean(value, axis=1, keepdims=True), (*query.shape[:3], value.shape[3]))
    >>> values = np.array([1.0, 3.0]).reshape(1, 2, 1, 1)
    >>> np.array(MeanAttention()(np.ones((1, 1, 1, 4)), np.ones((1, 2, 1, 4)), values)).item()
    2.0
    """

    supports: frozenset[str] = frozenset()
    shares_key: bool = False
    shares_value: bool = False
    takes_segments: bool = False
    applies_rotation: bool = False
    cache_is_rewindable: bool = True
    head_multiple: int = 1

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        pass

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility | None = None,
        position: AttentionPosition | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Outputs:
        if visibility is None:
            slots = (ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key))
            visibility = Visibility.from_slots(*slots)
        self._refuse(query, value, visibility, position, cache, return_attention_scores)
        if "cross" not in self.supports and visibility.query_mask is None and cache is None:
            visibility = dataclasses.replace(visibility, query_mask=visibility.key_mask)
        options: dict[str, Any] = {"return_attention_scores": return_attention_scores, "training": training}
        if cache is None:
            return self.attend(query, key, value, visibility, position, **options)
        return self.extend(query, key, value, cache, cache_index, visibility, position, **options)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Outputs:
        """Attention over whole sequences; arguments and result are those of `call` without a cache."""
        raise NotImplementedError

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        """Returns an empty cache for `max_length` tokens; the default cache keeps all keys and values."""
        return init_dense_cache(batch_size, max_length, num_heads, key_dim, value_dim, dtype)

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor | None,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        **options: Any,
    ) -> tuple[Outputs, Cache]:
        """Attention of new tokens to the cached keys and their own; returns `(result, next_cache)`."""
        key, value, slots, cache = extend_dense_cache(cache, key, value, cache_index, visibility.key_mask, query.dtype)
        visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
        return self.attend(query, key, value, visibility, position, **options), cache

    def _refuse(
        self,
        query: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        cache: Cache | None,
        return_attention_scores: bool,
    ) -> None:
        lengths = (query.shape[1], value.shape[1])  # Not the length of the key, which may be the query.
        requested = {
            "cache": cache is not None,  # First, as a cache makes attention causal.
            "causal": visibility.causal,
            "bidirectional": not visibility.causal,
            "cross": cache is None and None not in lengths and lengths[0] != lengths[1],
            "attention_mask": visibility.attention_mask is not None,
            "window": visibility.window is not None,
            "scores": return_attention_scores,
            **dict.fromkeys(() if position is None else position.needs, True),
        }
        check_supported(self, requested)
        check_no_key_mask(self, visibility.key_mask, cache)

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> Shape:
        return (*query_shape[:-1], value_shape[-1])

    def get_config(self) -> Config:  # Keras serializes a dtype policy only if this is overridden.
        return super().get_config()


def weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """Returns the weighted sum of values `(B, T, N, H_value)`, without a copy of the values for each head of a group."""
    heads, value_heads = weights.shape[1], value.shape[2]
    value = ops.transpose(value, (0, 2, 1, 3))
    if heads == value_heads:
        return ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
    length, key_length = ops.shape(weights)[2], ops.shape(weights)[3]
    weights = ops.reshape(weights, (-1, value_heads, heads // value_heads * length, key_length))
    context = ops.reshape(ops.matmul(weights, value), (-1, heads, length, value.shape[3]))
    return ops.transpose(context, (0, 2, 1, 3))


def check_supported(layer: keras.layers.Layer, requested: Mapping[str, object]) -> None:
    """Raises `ValueError`, with advice, for the first requested capability that is not in `layer.supports`.

    Args:
        layer: a mechanism, or a token mixer.
        requested: dict from names of capabilities, see `Mechanism.supports`, to whether each is requested.
    """
    for capability, is_requested in requested.items():
        if is_requested and capability not in layer.supports:
            raise ValueError(f"{type(layer).__name__} does not support {capability!r}: {_ADVICE[capability]}.")


def check_cross_attention(layer: keras.layers.Layer) -> None:
    """Raises `ValueError` for a layer that supports self-attention only."""
    if "cross" not in getattr(layer, "supports", ALL_CAPABILITIES):
        raise ValueError(f"{layer.name} supports self-attention only and cannot be a cross-attention.")


def check_no_key_mask(layer: keras.layers.Layer, key_mask: Tensor | None, cache: Cache | None) -> None:
    """Raises `ValueError` for a key mask together with a cache that does not keep all keys."""
    if cache is not None and not layer.cache_is_rewindable and key_mask is not None:
        raise ValueError(
            f"The cache of {type(layer).__name__} does not keep all keys, so a key mask cannot cover them. "
            "Mark padding among the new tokens with query_mask, and pad on the right."
        )
