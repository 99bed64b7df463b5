"""Masking of scores and weighted sums of values, shared by all mechanisms with a softmax."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor

# Far below every score, without overflow when a score or a bias is added.
MASKED_SCORE: float = -1e9


def masked_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Returns mask and position bias as one float32 bias `(B | 1, N | 1, T | 1, S)`; None if both are None."""
    if mask is None:
        return bias
    hidden = ops.cast(ops.logical_not(mask), "float32") * MASKED_SCORE
    return hidden if bias is None else hidden + ops.cast(bias, "float32")


def softmax_with_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    """Softmax of float32 scores `(B, N, T, S)` over the keys and the sink of each head, `(N,)`, whose share is left out."""
    sinks = ops.reshape(ops.cast(sinks, "float32"), (-1, 1, 1))
    # The largest logit cancels out, so no gradient flows through it.
    largest = ops.stop_gradient(ops.maximum(ops.max(scores, axis=-1, keepdims=True), sinks))
    weights = ops.exp(scores - largest)
    return weights / (ops.sum(weights, axis=-1, keepdims=True) + ops.exp(sinks - largest))


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


def zero_masked_queries(context: Tensor, seen: Tensor | None) -> Tensor:
    """Sets the context `(B, T, N, H)` of queries that attend to no key to zero; `seen` is boolean `(B, N, T, 1)` or None."""
    if seen is None:
        return context
    return context * ops.cast(ops.transpose(seen, (0, 2, 1, 3)), context.dtype)
