"""Softmax attention over a union of disjoint sets of keys, merged from attention to each set.

    softmax over K_1 ∪ K_2:  y = (Z_1 y_1 + Z_2 y_2) / (Z_1 + Z_2),   Z_p = Σ_{j ∈ K_p} exp(score_j)

A key that is in two of the sets counts twice.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from keras import ops

from keras_transformer.attention.masks import MASKED_SCORE, Visibility, masked_bias
from keras_transformer.attention.mechanism import weighted_sum
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
    from keras_transformer.positions import AttentionPosition


class PartialAttention(NamedTuple):
    """The result of attention to a subset of the keys.

    Attributes:
        context: `(B, T, N, H_value)`: attention to this subset alone; zeros for queries that attend to none of its keys.
        log_sum_exp: float32 `(B, T, N, 1)`: the log-sum-exp of the scores; about -1e9 for queries that attend to none.
    """

    context: Tensor
    log_sum_exp: Tensor


class AttentionOptions(TypedDict):
    """Arguments that a mechanism hands on to each of its parts."""

    position: AttentionPosition | None
    training: bool | None


def partial_attention(
    softmax: SoftmaxAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visibility: Visibility,
    position: AttentionPosition | None = None,
    bias: Tensor | None = None,
    training: bool | None = None,
) -> PartialAttention:
    """Softmax attention to a subset of the keys, with the log-sum-exp of its scores.

    Time and memory are proportional to queries times keys of the subset.

    Args:
        softmax: `SoftmaxAttention`, for its scoring and dropout.
        query: float `(B, T, N, H)`.
        key: float `(B, S, K, H)`; N is a multiple of K.
        value: float `(B, S, K, H_value)`.
        visibility: `masks.Visibility` of these queries and keys.
        position: an `AttentionPosition`, or None.
        bias: float32 `(B | 1, N | 1, T | 1, S)`, added to the scores in addition to the position's bias; or None.
        training: bool or None.

    Returns:
        `PartialAttention`.

    Example: attention to two halves of the keys, merged, is attention to all.

    >>> import numpy as np
    >>> from keras_transformer.attention import SoftmaxAttention, Visibility
    >>> x = np.arange(8.0).reshape(1, 4, 1, 2) / 8
    >>> softmax, everything = SoftmaxAttention(), Visibility()
    >>> halves = [partial_attention(softmax, x, half, half, everything) for half in (x[:, :2], x[:, 2:])]
    >>> bool(np.allclose(merge_parts(halves), softmax(x, x, x), atol=1e-6))
    True
    """
    positions = (visibility.query_positions, visibility.key_positions)
    position_bias = None if position is None else position.bias(query, *positions)
    mask = visibility.dense()
    scores = ops.cast(softmax.scoring(query, key), "float32")
    for term in (position_bias, masked_bias(mask, bias)):
        scores = scores if term is None else scores + term
    # The largest score cancels out, so no gradient flows through it.
    largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
    weights = ops.exp(scores - largest)
    total = ops.sum(weights, axis=-1, keepdims=True)  # (B, N, T, 1)
    value_term = None if position is None or "values" not in position.needs else position.values
    if value_term is not None:
        weights = weights / total
    weights = softmax.drop(ops.cast(weights, query.dtype), training)
    context = weighted_sum(weights, value)
    if value_term is not None:
        context = context + value_term(weights, *positions)
    log_sum_exp = _heads_last(largest + ops.log(total))
    # Divide the context, which is smaller than the weights.
    # Invert before the transposition: TensorFlow Lite's converter drops a division after it.
    factor = None if value_term is not None else _heads_last(1.0 / total)
    if mask is not None:
        seen = ops.cast(log_sum_exp > 0.5 * MASKED_SCORE, "float32")
        factor = seen if factor is None else seen * factor
    return PartialAttention(context if factor is None else context * ops.cast(factor, context.dtype), log_sum_exp)


def merge_parts(parts: Sequence[PartialAttention]) -> Tensor:
    """Returns the context of softmax attention to all keys of disjoint subsets.

    Args:
        parts: sequence of `PartialAttention`, of one shape.

    Returns:
        `(B, T, N, H_value)`; zeros for queries that attend to no key.
    """
    if len(parts) == 1:
        return parts[0].context
    largest = parts[0].log_sum_exp
    for part in parts[1:]:
        largest = ops.maximum(largest, part.log_sum_exp)
    largest = ops.stop_gradient(largest)
    weights = [ops.exp(part.log_sum_exp - largest) for part in parts]
    total = sum(weights[1:], start=weights[0])
    terms = [
        part.context * ops.cast(weight / total, part.context.dtype) for part, weight in zip(parts, weights, strict=True)
    ]
    return functools.reduce(operator.add, terms)


def _heads_last(x: Tensor):
    """`(B, N, T, 1)` to `(B, T, N, 1)`."""
    return ops.transpose(x, (0, 2, 1, 3))
