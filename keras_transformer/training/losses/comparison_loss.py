"""Loss of comparisons between two answers, for a reward model."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


@serializable
class ComparisonLoss(keras.losses.Loss):
    """Cross-entropy of which of two answers is preferred, given a score of each.

    With scores `r` and the label `p`, the probability that the first is preferred:

        loss = -p log s(r_1 - r_2) - (1 - p) log s(r_2 - r_1),    s(x) = 1 / (1 + exp(-x))

    A tie has the label 0.5.

    Args:
        name: str. Default "comparison_loss".
        reduction: str. Default "sum_over_batch_size", the mean.

    Call arguments:
        y_true: `(B,)` or `(B, 1)`, in [0, 1].
        y_pred: `(B, 2)`. The scores.

    Returns:
        The loss, a float32 scalar.

    Example:

    >>> import numpy as np
    >>> round(float(ComparisonLoss()(np.array([1.0]), np.array([[2.0, 1.0]]))), 4)  # log(1 + exp(-1))
    0.3133

    Reference: Nakano et al., WebGPT, arXiv 2112.09332, section 3.2 (reward modeling), after Stiennon et al., arXiv
        2009.01325, section 3.4.
    """

    def __init__(self, name: str = "comparison_loss", reduction: str = "sum_over_batch_size") -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        difference = y_pred[..., 0] - y_pred[..., 1]
        label = ops.reshape(ops.cast(y_true, difference.dtype), ops.shape(difference))
        return ops.softplus(difference) - label * difference
