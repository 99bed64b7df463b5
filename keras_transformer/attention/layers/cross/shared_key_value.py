"""Shared keys and values of YOCO."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import (
    cache_spec,
    fill_dense_cache,
    init_dense_cache,
    token_slots,
    update_dense_cache,
)
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, Initializer, LayerLike, Outputs, Shape, Tensor


@serializable
class SharedKeyValue(CachedLayer):
    """Shared keys `X W_k`, rotated by their positions, and values `X W_v` for all `CrossDecoderAttention` layers of a model.

    The cache of the model grows by one pair of keys and values per token, for any number of layers.

    Args:
        num_heads: int >= 1. The number of key/value heads K.
        key_dim: int >= 1. Width of each key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None; the same as in the attention layers.
        use_bias: bool. Whether the projections have biases. Defaults to True.
        kernel_initializer: initializer of the projections.
        key_norm: a name in `blocks.NORMS`, or a norm layer to copy: of each key head before rotation; or None.
        value_norm_epsilon: float > 0: each value head is divided by its root mean square, with this epsilon; or None.

    Call arguments:
        inputs: float `(B, T, D)`.
        positions: int `(T,)` or `(B, T)`, or None for 0, 1, 2, ..., counted from `cache_index`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        `(key, value)`: `(B, K, S, key_dim)` and `(B, K, S, value_dim)`, for the T tokens, or for all slots of the cache;
        with a cache, `((key, value), next_cache)`.

    Raises:
        ValueError: invalid arguments; more tokens than slots of the cache.

    Padding is masked by the layers that read the keys. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = SharedKeyValue(num_heads=2, key_dim=4, position="rotary")
    >>> (key, value), cache = layer(np.ones((1, 3, 8)), cache=layer.init_cache(1, max_length=5), cache_index=0)
    >>> tuple(key.shape), sorted(cache)
    ((1, 2, 5, 4), ['key', 'value'])

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, section 2; the norm before it is part of `models.YOCO`.
    The norms of keys and values are those of `models.Gemma3n`.
    """

    cache_is_rewindable = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        position: str | Config | AttentionPosition | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        key_norm: LayerLike | None = None,
        value_norm_epsilon: float | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._key_norm_template = resolve(key_norm, NORMS, keras.layers.Layer, argument="key_norm")
        self.key_norm = clone(self._key_norm_template, name="key_norm", dtype=self.dtype_policy)
        self.value_norm_epsilon = value_norm_epsilon

    def build(self, inputs_shape: Shape) -> None:
        for name, width in (("key", self.key_dim), ("value", self.value_dim)):
            dense = split_heads(self, name, self.num_heads, width)
            dense.build(inputs_shape)
            setattr(self, f"{name}_dense", dense)
        shape = (*inputs_shape[:2], self.num_heads)
        if self.key_norm is not None:
            self.key_norm.build((*shape, self.key_dim))
        if self.position is not None:
            build_once(self.position, (*shape, self.key_dim), (*shape, self.value_dim))

    def call(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        key, value = self.key_dense(inputs), self._value(inputs)  # (B, T, K, H)
        key = key if self.key_norm is None else self.key_norm(key)
        if self.position is not None:
            if positions is None:
                positions = token_slots(0 if cache is None else cache_index, ops.shape(inputs)[1])
            _, key = self.position.rotate(key, key, positions, positions)
        if cache is None:
            filled = fill_dense_cache(key, value)
            return filled["key"], filled["value"]
        cache = update_dense_cache(cache, key, value, cache_index)
        return tuple(ops.cast(cache[name], self.compute_dtype) for name in ("key", "value")), cache

    def _value(self, inputs: Tensor) -> Tensor:
        value = self.value_dense(inputs)
        if self.value_norm_epsilon is None:
            return value
        normalized = ops.rms_normalization(ops.cast(value, "float32"), axis=-1, epsilon=self.value_norm_epsilon)
        return ops.cast(normalized, value.dtype)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache for `max_length` tokens: dict of "key" and "value"."""
        measures = (self.num_heads, self.key_dim, self.value_dim)
        return init_dense_cache(batch_size, max_length, *measures, dtype or self.compute_dtype)

    def compute_output_spec(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
    ) -> Outputs:
        widths = (self.key_dim, self.value_dim)
        if cache is not None:
            spec = cache_spec(cache)
            return tuple(keras.KerasTensor(spec[name].shape, self.compute_dtype) for name in ("key", "value")), spec
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1])
        return tuple(keras.KerasTensor((*shape, width), dtype=self.compute_dtype) for width in widths)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "position": serialize(self.position),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "key_norm": serialize(self._key_norm_template),
            "value_norm_epsilon": self.value_norm_epsilon,
        }
