"""Two-stream attention of XLNet."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.softmax.partial_softmax import partial_attention
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class TwoStreamAttention(keras.layers.Layer):
    """Two-stream attention of XLNet, with relative positions and segments.

    The first S of T tokens are the content stream: queries, keys and values. Any others are the query stream: only queries,
    with the same weights, at positions of the content. With positions p, segments g, and the terms u, v and W_r of
    `positions.TransformerXLRelative`,

        y_i = Σ_j softmax_j(((q_i + u) · k_j + (q_i + v) · W_r r_{p_i - p_j} + (q_i + s) · e_{[g_i ≠ g_j]}) / √H) v_j

    Time and memory grow with T · S.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head.
        causal: bool. Whether a token attends only to itself and earlier tokens. Defaults to False.
        use_segments: bool. Whether there are weights s and e for segments. Defaults to True.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance to copy, or None. Defaults to "transformer_xl".
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases. Defaults to False.
        kernel_initializer: initializer of the projections and of e.
        seed: int or None. Seed of the dropout.

    Call arguments:
        query: float `(B, T, D)`.
        value: the same tokens; it is not read.
        value_mask: boolean `(B, T)`: False for padding, which has a zero context and no influence.
        attention_mask: boolean `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, True = may attend. It determines S. None: all
            tokens are content, and attend to each other.
        positions: int `(T,)` or `(B, T)`: the positions of the tokens. Those of the content are 0, 1, 2, ..., including
            padding. None for these.
        segment_ids: int `(B, T)`, or None: all tokens are of one segment.
        memory: float `(B, M, D)`, or None: M tokens before the others, only keys and values, visible to all, of segment 0.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `segment_ids` without `use_segments`; `num_heads` or `key_dim` below 1.

    Export: all three formats.

    Example: the third token, of the query stream, has the position of the second, and attends only to the first.

    >>> import numpy as np
    >>> layer = TwoStreamAttention(num_heads=1, key_dim=2)
    >>> x, mask = np.ones((1, 3, 4)), np.array([[[1, 0], [1, 1], [1, 0]]], bool)
    >>> tuple(layer(x, x, attention_mask=mask, positions=np.array([0, 1, 1])).shape)
    (1, 3, 4)

    Reference: Yang et al., XLNet, arXiv 1906.08237, sections 2.3 and 2.5. The published code also has dropout of sinusoids.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        causal: bool = False,
        use_segments: bool = True,
        position: str | Config | AttentionPosition | None = "transformer_xl",
        dropout: float = 0.0,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.causal = causal
        self.use_segments = use_segments
        position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.position = clone(position, name="position", dtype=self.dtype_policy)
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.softmax = SoftmaxAttention(dropout=dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, value_shape: Shape | None = None) -> None:
        for name in ("query", "key", "value"):
            dense = split_heads(self, name, self.num_heads, self.key_dim)
            dense.build(query_shape)
            setattr(self, f"_{name}_dense", dense)
        heads = (*query_shape[:2], self.num_heads, self.key_dim)
        build_once(self.softmax, heads, heads, heads)
        if self.position is not None:
            build_once(self.position, heads, heads)
        if self.use_segments:
            self.segment_bias = self.add_weight(name="segment_bias", shape=heads[2:], initializer="zeros")
            # Rows: query and key are in the same segment, or in different ones.
            self.segment_embedding = self.add_weight(
                name="segment_embedding", shape=(2, *heads[2:]), initializer=self.kernel_initializer.clone()
            )
        self._output_dense = join_heads(self, "attention_output", query_shape[-1])
        self._output_dense.build(heads)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        *,
        value_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        segment_ids: Tensor | None = None,
        memory: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        if segment_ids is not None and not self.use_segments:
            raise ValueError(f"{self.name!r} has use_segments=False, and does not accept segment_ids.")
        length = ops.shape(query)[1] if attention_mask is None else ops.shape(attention_mask)[-1]
        content, padding_mask = query[:, :length], value_mask
        slots = with_batch_axis(ops.arange(ops.shape(query)[1], dtype="int32") if positions is None else positions)
        key_slots, key_mask = slots[:, :length], None if padding_mask is None else padding_mask[:, :length]
        key_segments = None if segment_ids is None else segment_ids[:, :length]
        if memory is not None:
            past = _Memory(ops.shape(memory)[1])
            content = ops.concatenate([ops.cast(memory, content.dtype), content], axis=1)
            key_slots, key_mask = past.slots(key_slots), past.extend(key_mask, 1)
            key_segments, attention_mask = past.extend(key_segments, 0), past.extend(attention_mask, 1)
        query, key, value = self._query_dense(query), self._key_dense(content), self._value_dense(content)
        bias = None if segment_ids is None else self._segment_bias(query, segment_ids, key_segments)
        if self.position is not None:
            query, key = self.position.rotate(query, key, slots, key_slots)
        visibility = Visibility(
            query_mask=padding_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            causal=self.causal,
            query_slots=slots,
            key_slots=key_slots,
            query_positions=slots,
            key_positions=key_slots,
        )
        part = partial_attention(self.softmax, query, key, value, visibility, self.position, bias, training)
        return self._output_dense(part.context)

    def _segment_bias(self, query, query_segments, key_segments):
        """Returns `(q_i + s) · (e_1 - e_0) / √H` where segments differ, float32 `(B, N, T, S)`. The term of e_0 cancels."""
        change = ops.cast(self.segment_embedding[1] - self.segment_embedding[0], query.dtype)
        query = query + ops.cast(self.segment_bias, query.dtype)
        terms = ops.sum(ops.cast(query * change, "float32"), axis=-1) * self.key_dim**-0.5  # (B, T, N)
        differ = ops.not_equal(distances(query_segments, key_segments), 0)
        return ops.expand_dims(ops.transpose(terms, (0, 2, 1)), 3) * ops.cast(ops.expand_dims(differ, 1), "float32")

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape | None = None) -> Shape:
        return tuple(query_shape)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "causal": self.causal,
            "use_segments": self.use_segments,
            "position": serialize(self.position),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }


class _Memory:
    """What is known of the tokens of a memory, put before what is known of the keys."""

    def __init__(self, length: Tensor) -> None:
        self.length = length

    def slots(self, slots: Tensor) -> Tensor:
        """`(1 | B, S)` with negative slots before the first token."""
        before = ops.expand_dims(ops.arange(self.length, dtype="int32") - self.length, 0)
        before = ops.broadcast_to(before, (ops.shape(slots)[0], self.length))
        return ops.concatenate([before, ops.cast(slots, "int32")], axis=1)

    def extend(self, x: Tensor | None, value: int) -> Tensor | None:
        """`(..., S)` with `value` for each token of the memory; None stays None."""
        if x is None:
            return None
        before = ops.cast(ops.full((*ops.shape(x)[:-1], self.length), value, dtype="int32"), x.dtype)
        return ops.concatenate([before, x], axis=-1)
