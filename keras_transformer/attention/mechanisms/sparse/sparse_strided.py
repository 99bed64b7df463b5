"""Strided sparse attention (Sparse Transformers)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.sparse.masked_pattern import MaskedPattern
from keras_transformer.attention.partition.bands import Bands
from keras_transformer.attention.partition.strides import StridedSubsequences
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.softmax.partial_softmax import AttentionOptions
    from keras_transformer.positions import AttentionPosition


@serializable
class StridedSparseAttention(MaskedPattern):
    """Strided sparse attention to a local window and to every `stride`-th key.

    Query i attends to key j if `|i - j| < stride` or `i ≡ j mod stride`. Attention to the window and to the strided keys is
    computed separately and merged by log-sum-exp; no key counts twice. Time and memory grow with `T · (stride + T /
    stride)`, which is `T^1.5` for a stride of about `√T`. The result equals that of masked dense attention, for any length.

    Args:
        stride: int >= 1. Should be about the square root of the length, or the width of an image.
        separate_heads: bool. Whether the first half of the heads attends to the window and the second half to every
            `stride`-th key, including the query's own, instead of all heads to both.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions (with
    `separate_heads`, only those that rotate queries and keys). The cache keeps all keys; a new token is scored against each.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `stride` below 1; heads, or key/value heads above 1, that are odd; a call with scores, an
            `attention_mask` or other keys than queries.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 7, 1, 2))
    >>> values = np.arange(7.0).reshape(1, 7, 1, 1)
    >>> output = StridedSparseAttention(stride=3)(x, x, values)
    >>> np.array(output).ravel().astype(float).round(2).tolist()  # Token 6 attends to 0, 3, 4, 5 and 6.
    [2.4, 2.0, 2.5, 3.0, 3.5, 4.0, 3.6]

    Reference: Child et al., Sparse Transformers, arXiv 1904.10509, section 4.2. The window of the paper has one more key,
    which is also a strided one. Without causality, the pattern covers both sides.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})

    def __init__(
        self,
        stride: int = 64,
        separate_heads: bool = False,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.stride = positive("stride", stride)
        self.separate_heads = separate_heads
        if separate_heads:  # A bias covers all heads.
            self.supports = self.supports - {"bias", "query", "values"}

    @property
    def max_dense_queries(self) -> int:
        return self.stride

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self._num_heads = query_shape[2]
        if self.separate_heads and (query_shape[2] % 2 or (key_shape[2] > 1 and key_shape[2] % 2)):
            raise ValueError(
                "separate_heads needs even numbers of heads. "
                f"Received: {query_shape[2]} query heads, {key_shape[2]} key heads"
            )
        if self.separate_heads:
            query_shape = (*query_shape[:2], query_shape[2] // 2, query_shape[3])
            key_shape = (*key_shape[:2], max(1, key_shape[2] // 2), key_shape[3])
        self.softmax.build(query_shape, key_shape, value_shape)

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
        options: AttentionOptions = {"position": position, "training": training}
        if not self.separate_heads:
            near = self._near(query, key, value, visibility, options)
            return merge_parts([near, self._strided(query, key, value, visibility, options, with_itself=False)])
        first, second = zip(*(_halves(x) for x in (query, key, value)), strict=True)
        near = self._near(first[0], first[1], first[2], visibility, options)
        strided = self._strided(second[0], second[1], second[2], visibility, options, with_itself=True)
        return ops.concatenate([near.context, strided.context], axis=2)

    def _near(self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility, options: AttentionOptions):
        """Attention to the keys fewer than `stride` positions away."""
        bands = Bands.of_window(self.stride, (self.stride + 1) // 2, visibility.causal)
        windowed = dataclasses.replace(visibility, window=self.stride)
        blocks = bands.blocks(query), bands.neighbors(key), bands.neighbors(value)
        part = partial_attention(self.softmax, *blocks, bands.visibility(windowed, query, key), **options)
        return PartialAttention(*(bands.join(x, ops.shape(query)[1]) for x in part))

    def _strided(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        options: AttentionOptions,
        with_itself: bool,
    ):
        """Attention to the keys of the query's own residue class."""
        subsequences, length = StridedSubsequences(self.stride), ops.shape(query)[1]
        folded = subsequences.fold(query), subsequences.fold(key), subsequences.fold(value)
        rows = subsequences.visibility(visibility, query)
        if not with_itself:
            rows = exclude_own_slot(rows)
        part = partial_attention(self.softmax, *folded, rows, **options)
        return PartialAttention(*(subsequences.unfold(x, length) for x in part))

    def mask(self, query_slots: Tensor, key_slots: Tensor) -> Tensor:
        """The pattern without causality: `(B, T, S)`, or `(B, N, T, S)` with separate heads."""
        apart = ops.abs(ops.expand_dims(query_slots, 2) - ops.reshape(key_slots, (1, 1, -1)))
        near, strided = ops.less(apart, self.stride), ops.equal(apart % self.stride, 0)
        if not self.separate_heads:
            return ops.logical_or(near, strided)
        return ops.repeat(ops.stack([near, strided], axis=1), self._num_heads // 2, axis=1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "stride": self.stride,
            "separate_heads": self.separate_heads,
        }


def exclude_own_slot(visibility: Visibility) -> Visibility:
    """Masks keys of the query's own slot; with causality, keys of its own and later slots."""
    queries, keys = visibility.query_slots, visibility.key_slots
    if visibility.causal:
        return dataclasses.replace(visibility, key_slots=keys + 1)
    mask = ops.not_equal(ops.expand_dims(queries, 1), ops.expand_dims(keys, 0))
    return dataclasses.replace(visibility, attention_mask=mask)


def _halves(x: Tensor):
    """Splits the heads of `(B, T, N, H)` into two halves; a single head is in both."""
    half = x.shape[2] // 2
    return (x, x) if x.shape[2] == 1 else (x[:, :, :half], x[:, :, half:])
