"""The contract of a mechanism: which keys a query sees, and how they are weighed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import (
    check_key_mask,
    init_dense_cache,
    read_dense_cache,
    update_dense_cache,
)
from keras_transformer.attention.masks import Visibility
from keras_transformer.utils.types import Cache, Config, DType, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# What a mechanism may honor, and what to do where it does not.
_ADVICE = {
    "causal": "it has no causal form: call it with use_causal_mask=False, in an encoder",
    "bidirectional": "it is causal by nature: call it with use_causal_mask=True, in a decoder",
    "cross": "queries and keys must be the same tokens: use it for self-attention",
    "attention_mask": "it builds no matrix of queries by keys: give padding as query_mask and value_mask, or use 'softmax'",
    "window": "it takes no sliding_window: use mechanism='local'",
    "scores": "it builds no matrix of queries by keys, so there are no scores to return",
    "cache": "it has no form that reads token by token",
    "bias": "a position that adds to the scores has nowhere to act: use one that turns queries and keys, as 'rotary'",
    "query": "a position that reads the queries has nowhere to act: use one that turns queries and keys, as 'rotary'",
    "values": "a position that adds to the values has nowhere to act: use one that turns queries and keys, as 'rotary'",
}
ALL_CAPABILITIES = frozenset(_ADVICE)


class Mechanism(CachedLayer):
    """Base of mechanisms: `MultiHeadAttention` projects, a mechanism weighs.

    A subclass says in `supports` what it takes into account, and computes in `attend`; what it does not honor is refused
    before anything is computed. Padding (`query_mask`, `key_mask`) is honored by all. One that reads token by token with
    less than all keys overrides `init_cache` and `extend`, and sets `cache_is_rewindable` to False.

    Attributes:
        supports: set of "causal", "bidirectional", "cross" (keys are other tokens than queries), "attention_mask",
            "window", "scores", "cache", and of what positions need: "bias", "query", "values".
        shares_key: bool. Whether keys are the queries, so that there is no projection of keys.
        shares_value: bool. Whether values are the queries too, as they are projected, before they are normalized or turned.
        applies_rotation: bool. Whether it calls `position.rotate` itself, because it also reads queries and keys before
            rotation. If True, it receives queries and keys as projected.
        cache_is_rewindable: bool. Whether a cache can go back to an earlier index; one of fixed size cannot, and
            must be told which new tokens are padding (`query_mask`).

    Call arguments:
        query: float `(B, T, N, H)`.
        key: float `(B, S, K, H)`; N is a multiple of K.
        value: float `(B, S, K, H_value)`.
        visibility: `masks.Visibility`, or None: every query sees every key.
        position: an `AttentionPosition`, or None. Query and key are already rotated, unless `applies_rotation`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token; with a cache.
        return_attention_scores: bool.

    Returns:
        The context `(B, T, N, H_value)`, or `(context, scores)` with scores `(B, N, T, S)`; with a cache,
        `(that, next_cache)`.

    Raises:
        ValueError: asked for what it does not honor.
    """

    supports = frozenset()
    shares_key = False
    shares_value = False
    applies_rotation = False
    cache_is_rewindable = True

    def __init__(self, **kwargs: Any) -> None:
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
    ) -> Tensor:
        if visibility is None:
            slots = (ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key))
            visibility = Visibility.from_slots(*slots)
        self._refuse(query, value, visibility, position, cache, return_attention_scores)
        if "cross" not in self.supports and visibility.query_mask is None and cache is None:
            visibility = dataclasses.replace(visibility, query_mask=visibility.key_mask)  # The same tokens.
        options = {"return_attention_scores": return_attention_scores, "training": training}
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
    ) -> Tensor:
        """Attention over whole sequences; arguments and result as those of `call` without a cache."""
        raise NotImplementedError

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        """An empty cache for `max_length` tokens; the default keeps all keys and values."""
        return init_dense_cache(batch_size, max_length, num_heads, key_dim, value_dim, dtype)

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        **options: Any,
    ) -> tuple[Tensor, Cache]:
        """Attention of new tokens, whose keys join those in the cache; returns `(result, next_cache)`."""
        check_key_mask(cache, visibility.key_mask)
        cache = update_dense_cache(cache, key, value, cache_index)
        key, value = read_dense_cache(cache, query.dtype)
        slots = ops.arange(ops.shape(key)[1], dtype="int32")
        visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
        return self.attend(query, key, value, visibility, position, **options), cache

    def _refuse(
        self,
        query: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        cache: Cache,
        return_attention_scores: bool,
    ):
        lengths = (query.shape[1], value.shape[1])  # Not that of the key, which may be the query.
        asked = {
            "cache": cache is not None,  # First: a cache makes attention causal.
            "causal": visibility.causal,
            "bidirectional": not visibility.causal,
            "cross": cache is None and None not in lengths and lengths[0] != lengths[1],
            "attention_mask": visibility.attention_mask is not None,
            "window": visibility.window is not None,
            "scores": return_attention_scores,
            **dict.fromkeys(() if position is None else position.needs, True),
        }
        check_supported(self, asked)
        check_no_key_mask(self, visibility.key_mask, cache)

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> Shape:
        return (*query_shape[:-1], value_shape[-1])

    def get_config(self) -> Config:  # Keras can write down a dtype policy only where this is overridden.
        return super().get_config()


def check_supported(layer: keras.layers.Layer, asked):
    """Raises `ValueError`, with advice, for the first thing asked for that `layer.supports` does not name.

    Args:
        layer: a mechanism, or a mixer with projections of its own.
        asked: dict from a name, as `Mechanism.supports` lists them, to whether it is asked for.
    """
    for what, is_asked in asked.items():
        if is_asked and what not in layer.supports:
            raise ValueError(f"{type(layer).__name__} cannot honor {what!r}: {_ADVICE[what]}.")


def check_cross_attention(layer: keras.layers.Layer):
    """Raises `ValueError` for a layer that says in `supports` that its queries and keys must be the same tokens."""
    if "cross" not in getattr(layer, "supports", ALL_CAPABILITIES):
        raise ValueError(f"{layer.name} attends to its own tokens alone: it is no cross-attention.")


def check_no_key_mask(layer: keras.layers.Layer, key_mask: Tensor | None, cache: Cache):
    """Raises `ValueError` for a key mask beside the cache of a layer that does not keep all keys."""
    if cache is not None and not layer.cache_is_rewindable and key_mask is not None:
        raise ValueError(
            f"The cache of {type(layer).__name__} does not keep all keys, so a key mask cannot cover them: "
            "mark padding among the new tokens with query_mask, and pad on the right."
        )
