"""LongNet's dilated attention over segments of several lengths."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.bands import take_rows
from keras_transformer.attention.partition.segments import Segments, align_rows, segment_mask_of_heads
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# Up to this many new tokens attend to the whole cache; more are split into segments.
_MAX_DENSE_QUERIES = 16


@serializable
class LongNetAttention(SoftmaxBasedMechanism):
    """LongNet's dilated attention: branches of short dense and long sparse segments, merged per token.

    Branch b splits the sequence into segments of w_b tokens. Of each segment, head h keeps the tokens whose index modulo r_b
    is `floor(h / ⌈N / r_b⌉)`; they attend to each other only. With the context `y_i^b` of token i in branch b, and the sum
    `Z_i^b` of the exponentials of its scores:

        y_i = Σ_b (Z_i^b / Σ_c Z_i^c) y_i^b   over the branches that keep i;   zeros if none does.

    A key in several branches counts in each. Time and memory grow with `T · Σ_b w_b / r_b²`.

    Args:
        segment_lengths: sequence of ints >= 1: w_b. Default (2048, 4096, 8192).
        dilation_rates: sequence of as many ints >= 1: r_b, a divisor of w_b. Default (1, 2, 4).
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        mixing_gradient: bool. Whether gradients flow through the weights of branches. Default False, as in the reference.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention; positions that rotate queries and keys. The
    cache keeps as many tokens as the longest segment has, independent of `max_length`.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: lists of unequal length; a rate that does not divide its segment; a call with scores, an
            `attention_mask`, other keys than queries, or a position that adds to the scores.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 4, 1, 2))
    >>> values = np.arange(4.0).reshape(1, 4, 1, 1)
    >>> mechanism = LongNetAttention(segment_lengths=[2], dilation_rates=[1])
    >>> mechanism(x, x, values).numpy().ravel().tolist()  # The mean of each segment.
    [0.5, 0.5, 2.5, 2.5]

    Reference: Ding et al., LongNet, arXiv 2307.02486, equations 5 to 11; the offset of a head is that of torchscale's
    `DilatedAttention`. Deviation: padding of the last segment is masked; there it consists of zero keys.
    """

    supports = frozenset({"causal", "bidirectional", "cache"})
    cache_is_rewindable = False

    def __init__(
        self,
        segment_lengths: Sequence[int] = (2048, 4096, 8192),
        dilation_rates: Sequence[int] = (1, 2, 4),
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        mixing_gradient: bool = False,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.segment_lengths = tuple(positive("segment_lengths", length) for length in segment_lengths)
        self.dilation_rates = tuple(positive("dilation_rates", rate) for rate in dilation_rates)
        if not segment_lengths or len(segment_lengths) != len(dilation_rates):
            raise ValueError(
                f"Each segment length needs a dilation rate. Received: {segment_lengths} and {dilation_rates}"
            )
        if any(length % rate for length, rate in self._branches()):
            raise ValueError(f"A rate must divide its segment. Received: {segment_lengths} and {dilation_rates}")
        self.mixing_gradient = mixing_gradient

    def _branches(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.segment_lengths, self.dilation_rates, strict=True))

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
        length, heads = ops.shape(query)[1], query.shape[2]
        parts = []
        for segment, rate in self._branches():
            segments = Segments.of_length(length, segment, rate, heads)
            part = partial_attention(
                self.softmax,
                segments.blocks(query),
                segments.key_blocks(key),
                segments.key_blocks(value),
                segments.visibility(visibility, ops.shape(key)[0], length),
                training=training,
            )
            parts.append(segments.join(part, length))
        context = self._mix(parts)
        if visibility.query_mask is None:
            return context
        return context * ops.cast(ops.expand_dims(ops.expand_dims(visibility.query_mask, 2), 3), context.dtype)

    def _mix(self, parts: Sequence[PartialAttention]):
        if not self.mixing_gradient:
            parts = [PartialAttention(part.context, ops.stop_gradient(part.log_sum_exp)) for part in parts]
        return merge_parts(parts)

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        return init_window_cache(batch_size, max(self.segment_lengths), num_heads, key_dim, value_dim, dtype)

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
        slots = with_batch_axis(slots, ops.shape(key)[0])
        if query.shape[1] is not None and query.shape[1] <= _MAX_DENSE_QUERIES:
            return self._attend_few(query, key, value, slots, visibility, training), cache
        # Shift each row to a common start of all segments.
        longest, common = max(self.segment_lengths), math.lcm(*self.segment_lengths)
        shift = (slots[:, :1] + -(-longest // common) * common) % common  # The operand is positive, as ONNX truncates.
        query, key, value = (
            align_rows(x, shift, before, common) for x, before in ((query, longest), (key, 0), (value, 0))
        )
        seen = align_rows(slots >= 0, shift, 0, common)
        visibility = dataclasses.replace(visibility, query_mask=None, key_mask=seen)
        context = self.attend(query, key, value, visibility, training=training)
        return take_rows(context, shift + longest, ops.shape(slots)[1] - longest), cache

    def _attend_few(
        self, query: Tensor, key: Tensor, value: Tensor, slots: Tensor, visibility: Visibility, training: bool | None
    ):
        """A few new queries attend to all cached keys, one branch at a time."""
        parts, heads = [], query.shape[2]
        visibility = dataclasses.replace(visibility, key_mask=slots >= 0, key_slots=slots, key_positions=slots)
        for segment, rate in self._branches():
            mask = segment_mask_of_heads(
                with_batch_axis(visibility.query_slots, ops.shape(query)[0]), slots, segment, rate, heads
            )
            visible = dataclasses.replace(visibility, attention_mask=mask)
            parts.append(partial_attention(self.softmax, query, key, value, visible, training=training))
        return self._mix(parts)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "segment_lengths": list(self.segment_lengths),
            "dilation_rates": list(self.dilation_rates),
            "mixing_gradient": self.mixing_gradient,
        }
