"""Functions from logits to logits. Written once over an array namespace: `keras.ops` in a graph, numpy outside.

Logits are float32 `(B, V)`; a token that may not be drawn gets -inf. Parameters are numbers, or scalar tensors of a graph.
"""

from __future__ import annotations

from typing import Any

from keras_transformer.utils.types import Tensor

HIDDEN = float("-inf")


def penalize_repetition(ops: Any, logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Makes tokens that have been seen less likely: positive logits are divided by the penalty, others multiplied.

    Args:
        seen: boolean `(B, V)`: the tokens of the prompt and those generated.
        penalty: float > 0; 1 changes nothing.

    Reference: Keskar et al., CTRL, arXiv 1909.05858, section 4.1, with the sign handled as transformers does.
    """
    penalized = ops.where(logits > 0, logits / penalty, logits * penalty)
    return ops.where(seen, penalized, logits)


def keep_top_k(ops: Any, logits: Tensor, k: int) -> Tensor:
    """Keeps the k largest; ties with the k-th are kept.

    Reference: Fan et al., Hierarchical Neural Story Generation, arXiv 1805.04833, section 5.4.
    """
    values, _ = ops.top_k(logits, min(k, logits.shape[-1]))
    return ops.where(logits < values[:, -1:], HIDDEN, logits)


def keep_top_p(ops: Any, logits: Tensor, p: float) -> Tensor:
    """Keeps the smallest set of most likely tokens whose probability is at least p; ties with the last are kept.

    Reference: Holtzman et al., The Curious Case of Neural Text Degeneration, arXiv 1904.09751, equation 2.
    """
    ordered = -ops.sort(-logits, axis=-1)
    probabilities = ops.softmax(ordered, axis=-1)
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    # The first always stays; past the set stands what is largest, so that the smallest kept is the threshold.
    kept = ops.where(before < p, ordered, ordered[:, :1])
    return ops.where(logits < ops.min(kept, axis=-1, keepdims=True), HIDDEN, logits)


def keep_min_p(ops: Any, logits: Tensor, p: float) -> Tensor:
    """Keeps the tokens at least p times as likely as the most likely one.

    Reference: Nguyen et al., Turning Up the Heat: Min-p Sampling, arXiv 2407.01082, section 3.
    """
    probabilities = ops.softmax(logits, axis=-1)
    return ops.where(probabilities < p * ops.max(probabilities, axis=-1, keepdims=True), HIDDEN, logits)


def draw(ops: Any, logits: Tensor, uniforms: Tensor) -> Tensor:
    """One token a row, with the probabilities of the softmax, by inversion of their sum.

    Args:
        uniforms: float32 `(B,)` in [0, 1): the randomness, drawn outside, so that a graph needs no generator.

    Returns:
        int32 `(B,)`.
    """
    sums = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)
    total = sums[:, -1:]
    # Below the total even after rounding: a token of probability zero at the end is never reached.
    threshold = ops.minimum(ops.expand_dims(uniforms, 1) * total, total * (1 - 1e-6))
    return ops.sum(ops.cast(sums <= threshold, "int32"), axis=-1)


def most_likely(ops: Any, logits: Tensor) -> Tensor:
    """The largest of each row, the first of equal ones, int32 `(B,)`. By `top_k`, which all three formats have."""
    return ops.cast(ops.top_k(logits, 1)[1][:, 0], "int32")
