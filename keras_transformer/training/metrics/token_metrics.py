"""Metrics of token predictions over labeled tokens."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.training.losses.cross_entropy import cross_entropy, split_ignored, token_weights
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, DType, Tensor


@serializable
class MaskedAccuracy(keras.metrics.Mean):
    """Fraction of the labeled tokens whose largest logit is that of the label.

        sum_t w_t [argmax_v logits_tv = y_t] / sum_t w_t,    w_t = 0 where the label is `ignore_id`

    over all batches of an epoch, so that every token has the same weight.

    Args:
        ignore_id: int, or None to count every token. Default -100.
        name: str. Default "masked_accuracy".
        dtype: of the sums. Default: Keras's float type.

    Call arguments:
        y_true: integers `(..., T)`.
        y_pred: logits or probabilities `(..., T, V)`.
        sample_weight: `(B,)`, or the shape of `y_true`, or None.

    Returns:
        A scalar from 0 to 1; 0 before any token is counted.

    Example:

    >>> import numpy as np
    >>> metric = MaskedAccuracy()
    >>> metric.update_state(np.array([[1, 0, -100]]), np.array([[[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(self, ignore_id: int | None = IGNORE_ID, name: str = "masked_accuracy", dtype: DType = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.ignore_id = ignore_id
        self._direction = "up"

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        labels, counted = split_ignored(y_true, self.ignore_id)
        right = ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), labels)
        super().update_state(ops.cast(right, "float32"), token_weights(counted, sample_weight))

    def get_config(self) -> Config:
        return {**super().get_config(), "ignore_id": self.ignore_id}


@serializable
class Perplexity(keras.metrics.Mean):
    """Exponential of the mean cross-entropy, in nats, of the labeled tokens, without label smoothing.

        exp(sum_t -w_t log softmax(logits_t)[y_t] / sum_t w_t),    w_t = 0 where the label is `ignore_id`

    over all batches of an epoch: the mean is over tokens, not over batches, and is taken before the exponential.

    Args:
        ignore_id: int, or None to count every token. Default -100.
        name: str. Default "perplexity".
        dtype: of the sums. Default: Keras's float type.

    Call arguments:
        y_true: integers `(..., T)`.
        y_pred: logits `(..., T, V)` of any float dtype; computed in float32.
        sample_weight: `(B,)`, or the shape of `y_true`, or None.

    Returns:
        A scalar >= 1; 1 before any token is counted.

    Example:

    >>> import numpy as np
    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[1, 0, -100]]), np.log([[[0.5, 0.5], [0.125, 0.875], [0.3, 0.7]]]))
    >>> round(float(metric.result()), 4)  # (2 x 8)^0.5
    4.0
    """

    def __init__(self, ignore_id: int | None = IGNORE_ID, name: str = "perplexity", dtype: DType = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.ignore_id = ignore_id
        self._direction = "down"

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        labels, counted = split_ignored(y_true, self.ignore_id)
        losses = cross_entropy(labels, ops.cast(y_pred, "float32"))
        # The loss of an ignored token may be infinite, which a weight of 0 would turn into NaN.
        losses = ops.where(counted, losses, 0.0)
        super().update_state(losses, token_weights(counted, sample_weight))

    def result(self) -> Tensor:
        return ops.exp(super().result())

    def get_config(self) -> Config:
        return {**super().get_config(), "ignore_id": self.ignore_id}
