"""The sigmoid loss of pairs, of SigLIP."""

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class SigmoidContrastiveLoss(keras.losses.Loss):
    """Sigmoid loss of the pairs of a batch: every pair of a row and a column is classified by itself.

    With logits s and `z_ij = 1` if `y_i = y_j`, else -1:

        loss_i = -Σ_j log σ(z_ij s_ij)

    Unlike the softmax of `ContrastiveLoss` it compares no pair with the others of its row. The logits need a bias, about
    -10 at first, as most pairs do not match.

    Args:
        reduction: as in `keras.losses.Loss`. Default: the mean of the rows.
        name: str.

    Call arguments:
        y_true: int `(B,)`. Labels of the pairs: pairs with equal labels match each other. Use `range(B)` if each row matches
            only its own column.
        y_pred: float logits `(B, B)`, such as "logits" of `models.SigLIP`; computed in float32.
        sample_weight: `(B,)`, or None.

    Returns:
        The loss, a float32 scalar.

    Example:

    >>> import numpy as np
    >>> round(float(SigmoidContrastiveLoss()(np.arange(2), np.array([[1.0, -1.0], [-1.0, 1.0]]))), 4)  # -2 log σ(1)
    0.6265

    Reference: Zhai et al., Sigmoid Loss for Language Image Pre-Training, arXiv 2303.15343, section 3.2 and algorithm 1;
    there each pair has its own label.
    """

    def __init__(self, reduction: str = "sum_over_batch_size", name: str = "sigmoid_contrastive_loss") -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels = ops.reshape(y_true, (-1,))
        matches = ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(labels, 0))
        return -ops.sum(ops.log_sigmoid(ops.where(matches, y_pred, -y_pred)), axis=1)

    def get_config(self) -> Config:
        return {"reduction": self.reduction, "name": self.name}
