"""Cross-decoder attention of YOCO: attention to shared keys and values."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import read_dense_cache
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, Initializer, LayerLike, LayerOptions, Shape, Tensor


@serializable
class CrossDecoderAttention(keras.layers.Layer):
    """Causal attention to the keys and values of a `SharedKeyValue`: `concat_n(softmax(x W_q^n k_{n'}ᵀ / √H) v_{n'}) W_o`.

    The layer has no key and value projections and no cache: those of one `SharedKeyValue` serve all layers of this class.
    Each query attends to the keys up to its position. Time and memory grow with T · S.

    Args:
        num_heads: int >= 1. The number of query heads N, a multiple of the number of key heads.
        key_dim: int >= 1. Width of each query head.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None; the same as in the `SharedKeyValue`.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases. Defaults to True.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.
        window: int >= 1: a query attends to keys fewer than this many slots before it, but all scores are computed; or None.
        scoring: a name in `SCORINGS`, or an instance.
        query_norm: a name in `blocks.NORMS`, or a norm layer to copy: of each query head before rotation; or None.

    Call arguments:
        inputs: float `(B, T, D)`.
        key: float `(B, K, S, key_dim)`.
        value: float `(B, K, S, value_dim)`.
        padding_mask: boolean `(B, S)`: False for padding. None if no key up to a query is padding, as in a cache.
        positions: int `(T,)` or `(B, T)`: the key index of each query's token. None for 0 .. T - 1.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: invalid arguments; `num_heads` is not a multiple of the number of key heads.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer, keys = CrossDecoderAttention(num_heads=4, key_dim=2), np.ones((1, 2, 5, 2))
    >>> tuple(layer(np.ones((1, 1, 8)), keys, keys, positions=np.array([4])).shape)
    (1, 1, 8)

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, section 2 (the cross-decoder).
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        position: str | Config | AttentionPosition | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        window: int | None = None,
        scoring: LayerLike = "scaled_dot",
        query_norm: LayerLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.window = None if window is None else positive("window", window)
        self.mechanism = SoftmaxAttention(scoring, dropout, seed=seed, dtype=self.dtype_policy)
        self._query_norm_template = resolve(query_norm, NORMS, keras.layers.Layer, argument="query_norm")
        self.query_norm = clone(self._query_norm_template, name="query_norm", dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        if self.num_heads % key_shape[1]:
            raise ValueError(f"num_heads={self.num_heads} must be a multiple of the {key_shape[1]} key heads.")
        heads = (*inputs_shape[:2], self.num_heads)
        key_shape, value_shape = ((shape[0], shape[2], shape[1], shape[3]) for shape in (key_shape, value_shape))
        self.query_dense = split_heads(self, "query", self.num_heads, self.key_dim)
        self.query_dense.build(inputs_shape)
        if self.query_norm is not None:
            self.query_norm.build((*heads, self.key_dim))
        build_once(self.mechanism, (*heads, self.key_dim), key_shape, value_shape)
        if self.position is not None:
            build_once(self.position, (*heads, self.key_dim), value_shape)
        self.output_dense = join_heads(self, "attention_output", inputs_shape[-1])
        self.output_dense.build((*heads, value_shape[-1]))

    def call(
        self,
        inputs: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        query = self.query_dense(inputs)  # (B, T, N, H)
        query = query if self.query_norm is None else self.query_norm(query)
        key, value = read_dense_cache({"key": key, "value": value})
        slots = ops.arange(ops.shape(query)[1], dtype="int32") if positions is None else positions
        key_slots = ops.arange(ops.shape(key)[1], dtype="int32")
        visibility = Visibility(
            key_mask=padding_mask,
            causal=True,
            window=self.window,
            query_slots=slots,
            key_slots=key_slots,
            query_positions=slots,
            key_positions=key_slots,
            starts_at_zero=positions is None,
        )
        if self.position is not None:
            query, _ = self.position.rotate(query, query, slots, slots)
        context = self.mechanism(query, key, value, visibility=visibility, position=self.position, training=training)
        return self.output_dense(context)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "position": serialize(self.position),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
            "window": self.window,
            "scoring": serialize(self.mechanism.scoring),
            "query_norm": serialize(self._query_norm_template),
        }
