"""Cross-entropy of each token, and which tokens count."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.backend.compilation.xla import is_traced_for_xla
from keras_transformer.training.losses.softmax_likelihood import negative_log_likelihood
from keras_transformer.utils.types import Tensor


def split_ignored(labels: Tensor | None, ignore_id: int | None) -> tuple[Tensor, Tensor]:
    """Returns the labels as int32, with 0 in place of `ignore_id`, and a boolean mask of the labels that count."""
    if labels is None:
        raise ValueError("The loss needs labels: pass y, or batches of inputs and labels, to fit.")
    ids = ops.cast(labels, "int32")
    if ignore_id is None:
        return ids, ops.ones_like(ids, dtype="bool")
    counted = ops.not_equal(ids, ignore_id)
    return ops.where(counted, ids, 0), counted


def token_weights(counted: Tensor, sample_weight: Tensor | None) -> Tensor:
    """Returns float32 weights of the shape of `counted`: 0 where it is False, else the sample weight (None: 1)."""
    counted = ops.cast(counted, "float32")
    if sample_weight is None:
        return counted
    weights = ops.cast(sample_weight, "float32")
    # Weights of rows, (B,), apply to each of their tokens.
    while len(weights.shape) < len(counted.shape):
        weights = ops.expand_dims(weights, -1)
    return counted * weights


def cross_entropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Returns the cross-entropy of every token: integer labels `(...)` and float logits `(..., V)` to `(...)`."""
    losses = _negative_log_likelihood(labels, logits)
    if label_smoothing:
        spread = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        losses = (1 - label_smoothing) * losses + label_smoothing * spread
    return losses


def _negative_log_likelihood(labels, logits):
    """`-log_softmax(logits)` at the labels, with one tensor `(..., V)` kept at most: these need most of the memory."""
    if keras.backend.backend() == "tensorflow":
        if is_traced_for_xla() or keras.backend.standardize_dtype(logits.dtype) != "float32":
            # One kernel, which also computes the gradient and stores nothing else.
            return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        width = logits.shape[-1]
        losses = negative_log_likelihood(ops.reshape(logits, (-1, width)), ops.reshape(labels, (-1,)))
        return ops.reshape(losses, ops.shape(labels))
    # Not log_softmax: XLA would store its result.
    likely = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(likely, -1)
