"""The contrastive loss of pairs within a batch."""

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable


@serializable
class ContrastiveLoss(keras.losses.Loss):
    """Each row is to find its partner among the columns of the batch, and each column its own among the rows.

    With logits s and the matches `m_ij = [y_i = y_j]`:

        loss_i = -(1/2) Σ_j m_ij / Σ_k m_ik (log softmax_j(s_i.) + log softmax_j(s_.i))

    Without equal labels it is the loss of CLIP: the cross-entropy to the diagonal, of rows and of columns. It is also that
    of sentence embeddings with negatives from the batch.

    Args:
        symmetric: bool. Whether columns look for rows too; False for rows alone.
        reduction: as for `keras.losses.Loss`. Default: the mean of the rows.
        name: str.

    Call arguments:
        y_true: int `(B,)`. What each pair is about: pairs with the same label match each other. All different, as
            `range(B)`, where only partners do.
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

    def __init__(self, symmetric=True, reduction="sum_over_batch_size", name="contrastive_loss"):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.symmetric = symmetric

    def call(self, y_true, y_pred):
        labels = ops.reshape(y_true, (-1,))
        matches = ops.cast(ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(labels, 0)), "float32")
        matches = matches / ops.sum(matches, axis=1, keepdims=True)
        losses = -ops.sum(matches * ops.log_softmax(y_pred, axis=1), axis=1)
        if not self.symmetric:
            return losses
        columns = ops.log_softmax(ops.transpose(y_pred), axis=1)
        return (losses - ops.sum(matches * columns, axis=1)) / 2

    def get_config(self):
        return {"symmetric": self.symmetric, "reduction": self.reduction, "name": self.name}
