"""The contrastive loss with in-batch negatives."""

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class ContrastiveLoss(keras.losses.Loss):
    """Contrastive loss of the pairs of a batch: cross-entropy of rows over columns and of columns over rows.

    With logits s and the matches `m_ij = [y_i = y_j]`:

        loss_i = -(1/2) Σ_j m_ij / Σ_k m_ik (log softmax_j(s_i.) + log softmax_j(s_.i))

    With distinct labels it is the loss of CLIP, with the targets on the diagonal, and the loss of sentence embeddings with
    in-batch negatives.

    Args:
        symmetric: bool. Whether to include the columns' loss; False for the rows alone. Default True.
        reduction: as in `keras.losses.Loss`. Default: the mean of the rows.
        name: str.

    Call arguments:
        y_true: int `(B,)`. Labels of the pairs: pairs with equal labels match each other. Use `range(B)` if each row matches
            only its own column.
        y_pred: float logits `(B, B)`, such as "logits" of `models.CLIP`; computed in float32.
        sample_weight: `(B,)`, or None.

    Returns:
        The loss, a float32 scalar.

    Example:

    >>> import numpy as np
    >>> round(float(ContrastiveLoss()(np.arange(2), np.array([[1.0, 0.0], [0.0, 1.0]]))), 4)  # -log σ(1)
    0.3133

    Reference: Radford et al., arXiv 2103.00020, figure 3; van den Oord et al., arXiv 1807.03748, equation 4 (one side);
    pairs with one label: Yang et al., UniCL, arXiv 2204.03610, equation 3.
    """

    def __init__(
        self, symmetric: bool = True, reduction: str = "sum_over_batch_size", name: str = "contrastive_loss"
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.symmetric = symmetric

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels = ops.reshape(y_true, (-1,))
        matches = ops.cast(ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(labels, 0)), "float32")
        matches = matches / ops.sum(matches, axis=1, keepdims=True)
        losses = -ops.sum(matches * ops.log_softmax(y_pred, axis=1), axis=1)
        if not self.symmetric:
            return losses
        columns = ops.log_softmax(ops.transpose(y_pred), axis=1)
        return (losses - ops.sum(matches * columns, axis=1)) / 2

    def get_config(self) -> Config:
        return {"symmetric": self.symmetric, "reduction": self.reduction, "name": self.name}
