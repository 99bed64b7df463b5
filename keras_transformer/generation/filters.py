"""Logits processors over an array namespace: `keras.ops` in a graph, `arrays.numpy_ops` outside.

Logits are float32 `(B, V)`; excluded tokens get -inf. Parameters are numbers, or scalar tensors of a graph.
"""

from __future__ import annotations

from keras_transformer.generation.arrays import ArrayFunctions
from keras_transformer.utils.types import Tensor

EXCLUDED = float("-inf")


def penalize_repetition(ops: ArrayFunctions, logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Repetition penalty: divides positive logits of seen tokens by the penalty and multiplies the others.

    Args:
        seen: boolean `(B, V)`. True for tokens of the prompt and generated tokens.
        penalty: float > 0; 1 for none.

    Reference: Keskar et al., CTRL, arXiv 1909.05858, section 4.1; the sign is handled as in Hugging Face transformers.
    """
    penalized = ops.where(logits > 0, logits / penalty, logits * penalty)
    return ops.where(seen, penalized, logits)


def keep_top_k(ops: ArrayFunctions, logits: Tensor, k: int) -> Tensor:
    """Top-k filter: keeps the k largest logits, and ties with the k-th.

    Reference: Fan et al., Hierarchical Neural Story Generation, arXiv 1805.04833, section 5.4.
    """
    values, _ = ops.top_k(logits, min(k, logits.shape[-1]))
    return ops.where(logits < values[:, -1:], EXCLUDED, logits)


def keep_top_p(ops: ArrayFunctions, logits: Tensor, p: float) -> Tensor:
    """Top-p (nucleus) filter: keeps the smallest set of most likely tokens with total probability of at least p, and ties.

    Reference: Holtzman et al., The Curious Case of Neural Text Degeneration, arXiv 1904.09751, equation 2.
    """
    ordered = -ops.sort(-logits, axis=-1)
    probabilities = ops.softmax(ordered, axis=-1)
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    # The first token is always kept. Excluded positions get the largest logit, so that the minimum is the threshold.
    kept = ops.where(before < p, ordered, ordered[:, :1])
    return ops.where(logits < ops.min(kept, axis=-1, keepdims=True), EXCLUDED, logits)


def keep_min_p(ops: ArrayFunctions, logits: Tensor, p: float) -> Tensor:
    """Min-p filter: keeps tokens with at least p times the probability of the most likely token.

    Reference: Nguyen et al., Turning Up the Heat: Min-p Sampling, arXiv 2407.01082, section 3.
    """
    probabilities = ops.softmax(logits, axis=-1)
    return ops.where(probabilities < p * ops.max(probabilities, axis=-1, keepdims=True), EXCLUDED, logits)


def draw(ops: ArrayFunctions, logits: Tensor, uniforms: Tensor | None) -> Tensor:
    """Samples a token for each row from the softmax of its logits, by inverting the cumulative distribution.

    Args:
        uniforms: float32 `(B,)` in [0, 1). An input, so that a graph needs no random generator.

    Returns:
        int32 `(B,)`.
    """
    sums = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)
    total = sums[:, -1:]
    # Strictly below the total despite rounding, so that a last token with probability 0 is never drawn.
    threshold = ops.minimum(ops.expand_dims(uniforms, 1) * total, total * (1 - 1e-6))
    return ops.sum(ops.cast(sums <= threshold, "int32"), axis=-1)


def most_likely(ops: ArrayFunctions, logits: Tensor) -> Tensor:
    """Returns the index of the largest logit of each row, ties by index, int32 `(B,)`."""
    # All export formats support top_k.
    return ops.cast(ops.top_k(logits, 1)[1][:, 0], "int32")
