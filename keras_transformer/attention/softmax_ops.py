"""What every softmax over scores shares: hidden keys, the weighted sum of values, queries that see nothing."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor

# Far below every score, and far from overflow when a score or a bias is added to it.
MASKED_SCORE = -1e9


def masked_bias(mask: Tensor | None, bias: Tensor | None):
    """Mask and position bias as one float32 term, `(B | 1, N | 1, T | 1, S)`, so that the scores are read once."""
    if mask is None:
        return bias
    hidden = ops.cast(ops.logical_not(mask), "float32") * MASKED_SCORE
    return hidden if bias is None else hidden + ops.cast(bias, "float32")


def weighted_sum(weights: Tensor, value: Tensor):
    """The weighted sum of values, `(B, T, N, H_value)`, without repeating the values of grouped heads."""
    heads, value_heads = weights.shape[1], value.shape[2]
    value = ops.transpose(value, (0, 2, 1, 3))
    if heads == value_heads:
        return ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
    length, key_length = ops.shape(weights)[2], ops.shape(weights)[3]
    weights = ops.reshape(weights, (-1, value_heads, heads // value_heads * length, key_length))
    context = ops.reshape(ops.matmul(weights, value), (-1, heads, length, value.shape[3]))
    return ops.transpose(context, (0, 2, 1, 3))


def zero_masked_queries(context: Tensor, seen: Tensor):
    """Zeros in the context `(B, T, N, H)` of queries that see no key, so neither NaN nor the mean of the values."""
    if seen is None:
        return context
    return context * ops.cast(ops.transpose(seen, (0, 2, 1, 3)), context.dtype)
