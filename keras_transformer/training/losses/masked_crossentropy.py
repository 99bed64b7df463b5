"""Cross-entropy over labeled tokens."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.training.distribution.replicas import mean_of_replicas
from keras_transformer.training.losses.cross_entropy import cross_entropy, split_ignored, token_weights
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class MaskedCrossentropy(keras.losses.Loss):
    """Mean cross-entropy, in nats, of the labeled tokens of a batch, with label smoothing.

    With log-probabilities `l = log_softmax(logits)`, smoothing `e` and weights `w` (0 where the label is `ignore_id`):

        loss_t = -(1 - e) l[y_t] - e mean_v l[v]
        loss   = sum_t w_t loss_t / sum_t w_t

    The mean is over tokens: every labeled token of a batch has the same weight, in short and in long rows, and padding has
    none. A batch without labeled tokens has loss 0.

    Args:
        label_smoothing: float in [0, 1). `e`; distributed evenly over all V classes. Default 0.
        ignore_id: int, or None to count every token. Label of tokens that are not counted. Default -100.
        name: str. Default "masked_crossentropy".

    Call arguments:
        y_true: integers `(..., T)`: `(B, T)`, or `(B,)` for one label per row. In [0, V), or `ignore_id`.
        y_pred: logits `(..., T, V)` of any float dtype; computed in float32.
        sample_weight: `(B,)`, or the shape of `y_true`, or None. Weights of rows or tokens, in the divisor too.

    Returns:
        The loss, a float32 scalar.

    Raises:
        ValueError: `label_smoothing` is out of its range.

    The loss supports a Keras mask of the logits. Under `tf.distribute` the divisor is the sum over all replicas, for the
    mean of the whole batch. The `loss` that `fit` prints for an epoch is the mean over its batches weighted by their rows;
    `Perplexity` is weighted by tokens. With `gradient_accumulation_steps=k` Keras applies the mean of k gradients, which is
    the gradient of the k batches joined only if they have equal numbers of labeled tokens.

    Example:

    >>> import numpy as np
    >>> logits = np.log([[[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]]])
    >>> round(float(MaskedCrossentropy()(np.array([[0, 1, -100]]), logits)), 4)  # -(ln 0.5 + ln 0.75) / 2
    0.4904

    Reference: Szegedy et al., arXiv 1512.00567, section 7 (label smoothing), as in Vaswani et al., arXiv 1706.03762,
    section 5.4.
    """

    def __init__(
        self, label_smoothing: float = 0.0, ignore_id: int | None = IGNORE_ID, name: str = "masked_crossentropy"
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1). Received: {label_smoothing}")
        super().__init__(name=name, reduction="mean_with_sample_weight", dtype="float32")
        self.label_smoothing = label_smoothing
        self.ignore_id = ignore_id

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        _, counted = split_ignored(y_true, self.ignore_id)
        weights = token_weights(counted, sample_weight)
        mask = keras_private.get_mask(y_pred)
        return mean_of_replicas(super().__call__(y_true, y_pred, weights), weights, mask)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, counted = split_ignored(y_true, self.ignore_id)
        losses = cross_entropy(labels, y_pred, self.label_smoothing)
        # The loss of an ignored token may be infinite, which a weight of 0 would turn into NaN.
        return ops.where(counted, losses, 0.0)

    def get_config(self) -> Config:
        return {"label_smoothing": self.label_smoothing, "ignore_id": self.ignore_id, "name": self.name}
