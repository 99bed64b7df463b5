"""Softmax attention over all keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.masks import Visibility, masked_bias, zero_masked_queries
from keras_transformer.attention.mechanism import ALL_CAPABILITIES, Mechanism, weighted_sum
from keras_transformer.attention.scoring import SCORINGS
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.attention.softmax.causal_blocks import (
    causal_blocks,
    number_of_blocks,
    parts_of_rows,
    recomputed_attention,
)
from keras_transformer.backend.kernels.fused_attention import (
    fused_attention,
    has_fused_attention,
    has_segment_attention,
    segment_attention,
)
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerOptions, Outputs, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class SoftmaxAttention(Mechanism):
    """Softmax attention, `softmax(scores(Q, K) + bias) V`, with any scoring function.

    Memory and time grow with T · S; in training, causal rows of a static length of 256 or more are computed in blocks of
    queries over the keys up to their end, which is about half of it. With scaled dot scores, without dropout, sinks and
    biases, these keep no weights for the backward pass, which computes them again, one block at a time; their gradients are
    of the first order only. The softmax is computed in float32 under every dtype policy. A query whose keys are all masked
    has a zero context. With sinks, each head n has a learned logit `sink_n` that takes part in the softmax as one more key
    whose value is zero, so that the weights of a query sum to less than 1:
    `weight_j = exp(score_j) / (exp(sink_n) + Σ_i exp(score_i))`.

    Args:
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        flash_attention: bool or None. Whether to use the backend's fused kernel. None uses it if Keras allows it
            (`keras.config.is_flash_attention_enabled()`) and the backend has one (JAX, PyTorch). The kernel supports scaled
            dot scores without dropout and without sinks, and returns no weights. On JAX with CUDA, causality and a causal
            window are flags of it, and only other masks, such as that of padding, become tensors.
        seed: int or None. Seed of the dropout.
        use_sinks: bool. Whether each head has a sink.

    Call arguments: see `Mechanism`; all are supported. The scores are the attention weights before dropout.

    Returns:
        The context `(B, T, N, H_value)`, or `(context, scores)`; with a cache, `(that, next_cache)`.

    Raises:
        ValueError: `flash_attention=True` for a call that the kernel does not support.

    Weights: with sinks, "sinks" `(N,)`, initially zeros.

    Example:

    >>> import numpy as np
    >>> x = np.eye(2).reshape(1, 2, 1, 2)
    >>> SoftmaxAttention(scoring="dot")(x, x, x).numpy().round(3)[0, 0, 0].tolist()
    [0.7310000061988831, 0.26899999380111694]

    Reference: Vaswani et al., arXiv 1706.03762, equation 1; sinks: OpenAI, gpt-oss model card, arXiv 2508.10925, section
    2.3, and Xiao et al., arXiv 2309.17453, section 3.3 (SinkAttention).
    """

    supports = ALL_CAPABILITIES
    takes_segments = True

    def __init__(
        self,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        flash_attention: bool | None = None,
        seed: int | None = None,
        use_sinks: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.scoring = resolve(scoring, SCORINGS, dtype=self.dtype_policy, argument="scoring")
        self.dropout = dropout
        self.flash_attention = flash_attention
        self.seed = seed
        if flash_attention and dropout > 0:
            raise ValueError("Dropout is not supported when flash attention is enabled. Set dropout=0.0.")
        if flash_attention and use_sinks:
            raise ValueError("The fused kernel has no sinks. Set flash_attention=None, or use_sinks=False.")
        self.use_sinks = use_sinks
        self.sinks = None
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        build_once(self.scoring, query_shape, key_shape)
        if self.use_sinks:
            self.sinks = self.add_weight(name="sinks", shape=(query_shape[-2],), initializer="zeros")

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
        positions = (visibility.query_positions, visibility.key_positions)
        bias = None if position is None else position.bias(query, *positions)
        value_term = None if position is None or "values" not in position.needs else position.values
        takes_kernel = value_term is None and self._takes_kernel(key, value, return_attention_scores, training)
        if training and bias is None and value_term is None and not (takes_kernel or return_attention_scores):
            count = number_of_blocks(query, key, visibility)
            if count > 1:
                return self._in_blocks(count, query, key, value, visibility)
        segments = visibility.segment_ids if _are_segments(visibility) else None
        if takes_kernel and bias is None and segments is not None and has_segment_attention(query, key):
            options = {"scale": self.scoring.scale, "is_causal": visibility.causal}
            return segment_attention(query, key, value, segments, **options)
        # A kernel with flags for causality needs no dense mask, unless queries may have to be set to zero.
        mask = visibility.dense() if visibility.can_mask_all_keys or not takes_kernel else None
        # (B | 1, N | 1, T | 1, 1)
        seen = ops.any(mask, axis=-1, keepdims=True) if visibility.can_mask_all_keys else None
        if takes_kernel:
            return zero_masked_queries(self._fused(query, key, value, visibility, bias), seen)
        weights = self._softmax(self.scoring(query, key), masked_bias(mask, bias))
        dropped = self.drop(weights, training)
        context = weighted_sum(dropped, value)
        if value_term is not None:
            context = context + value_term(dropped, *positions)
        context = zero_masked_queries(context, seen)
        if not return_attention_scores:
            return context
        return context, weights if seen is None else weights * ops.cast(seen, weights.dtype)

    def _in_blocks(self, count: int, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility) -> Tensor:
        """Returns the context of causal queries in training, in blocks."""
        blocks = causal_blocks(count, query.shape[1], visibility)
        if self.dropout > 0 or self.use_sinks or type(self.scoring) is not ScaledDot:
            parts = parts_of_rows(blocks, query, key, value)
            return ops.concatenate([self.attend(*part, training=True) for part in parts], axis=1)
        context = recomputed_attention(self.scoring.scaled(query), key, value, blocks)
        if not visibility.can_mask_all_keys:
            return context
        seen = [ops.any(block.visibility.dense(), axis=-1, keepdims=True) for block in blocks]
        return zero_masked_queries(context, ops.concatenate(seen, axis=2))

    def drop(self, weights: Tensor, training: bool | None = None) -> Tensor:
        """Applies dropout to attention weights."""
        return self._dropout_layer(weights, training=training)

    def _softmax(self, scores: Tensor, bias: Tensor | None):
        dtype = scores.dtype
        scores = ops.cast(scores, "float32")
        if bias is not None:
            scores = scores + bias
        weights = ops.softmax(scores, axis=-1) if self.sinks is None else _softmax_with_sinks(scores, self.sinks)
        return ops.cast(weights, dtype)

    def _takes_kernel(self, key: Tensor, value: Tensor, return_attention_scores: bool, training: bool | None):
        fits = isinstance(self.scoring, ScaledDot) and not return_attention_scores and not self.use_sinks
        # JAX's kernel needs heads of equal width, and Keras's workaround fails.
        fits = fits and key.shape[-1] == value.shape[-1] and not (training and self.dropout > 0)
        if self.flash_attention and not fits:
            raise ValueError(
                "Returning attention scores is not supported when flash attention is enabled. Please disable flash "
                "attention to access attention scores, and for scorings other than 'scaled_dot' and values of another width."
            )
        # None, unless the user has enabled or disabled flash attention.
        allowed = self.flash_attention is None and keras.config.is_flash_attention_enabled() is not False
        return self.flash_attention or (fits and allowed and keras.backend.backend() in ("jax", "torch"))

    def avoids_scores(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        training: bool | None = None,
    ) -> bool:
        """Returns whether a call takes a fused kernel and needs no tensor of T · S elements, neither scores nor mask."""
        if visibility.by_flags().needs_mask or (position is not None and position.needs):
            return False
        takes_kernel = self._takes_kernel(key, value, False, training)
        return bool(takes_kernel) and has_fused_attention(query, has_window=visibility.window is not None)

    def _fused(self, query, key, value, visibility: Visibility, bias: Tensor | None):
        """The context of a fused kernel, with causality and its window as flags, and a mask for the rest."""
        is_causal = visibility.causal and visibility.starts_at_zero
        return fused_attention(
            query,
            key,
            value,
            bias=bias,
            mask=visibility.by_flags().dense(),
            scale=self.scoring.scale,
            is_causal=is_causal,
            window=visibility.window if is_causal else None,
            flash_attention=self.flash_attention,
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scoring": serialize(self.scoring),
            "dropout": self.dropout,
            "flash_attention": self.flash_attention,
            "seed": self.seed,
            "use_sinks": self.use_sinks,
        }


def _are_segments(visibility: Visibility) -> bool:
    """Whether nothing but segments and causality limits what a query attends to."""
    others = (visibility.query_mask, visibility.key_mask, visibility.attention_mask, visibility.window)
    return visibility.segment_ids is not None and visibility.starts_at_zero and all(each is None for each in others)


def _softmax_with_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    """Softmax of float32 scores `(B, N, T, S)` over the keys and the sink of each head, `(N,)`, whose share is left out."""
    sinks = ops.reshape(ops.cast(sinks, "float32"), (-1, 1, 1))
    # The largest logit cancels out, so no gradient flows through it.
    largest = ops.stop_gradient(ops.maximum(ops.max(scores, axis=-1, keepdims=True), sinks))
    weights = ops.exp(scores - largest)
    return weights / (ops.sum(weights, axis=-1, keepdims=True) + ops.exp(sinks - largest))
