"""The loss of language models, taggers and translators: cross-entropy over the tokens that are real."""

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.training.distribution import mean_of_replicas
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.serialization import serializable


@serializable
class MaskedCrossentropy(keras.losses.Loss):
    """The mean cross-entropy, in nats, of the labeled tokens of a batch, with label smoothing.

    With log-probabilities `l = log_softmax(logits)`, smoothing `e` and weights `w` (0 where the label is `ignore_id`):

        loss_t = -(1 - e) l[y_t] - e mean_v l[v]
        loss   = sum_t w_t loss_t / sum_t w_t

    The mean runs over tokens: every labeled token of a batch counts the same, in short rows and in long ones, and padding
    counts nothing. A batch without a labeled token has loss 0.

    Args:
        label_smoothing: float in [0, 1). `e`; it is spread evenly over all V classes. Defaults to 0.
        ignore_id: int, or None to count every token. Tokens with this label count nothing. Defaults to -100.
        name: str. Defaults to "masked_crossentropy".

    Call arguments:
        y_true: integers `(..., T)`: `(B, T)`, or `(B,)` for one label a row. Other than `ignore_id` they lie in [0, V).
        y_pred: logits `(..., T, V)` of any float dtype; computed in float32.
        sample_weight: `(B,)`, or the shape of `y_true`, or None. Weights of rows or tokens; they enter the divisor too.

    Returns:
        The loss, a float32 scalar.

    Raises:
        ValueError: `label_smoothing` is out of its range.

    A Keras mask of the logits is honored. Under `tf.distribute` the divisor is the sum over all replicas, so that the mean
    is that of the whole batch. The `loss` that `fit` prints for an epoch is the mean over its batches weighted
    by their rows; `Perplexity` weighs tokens. With `gradient_accumulation_steps=k` Keras applies the mean of k gradients:
    it is the gradient of the k batches as one only where they hold equal numbers of labeled tokens.

    Example:

    >>> import numpy as np
    >>> logits = np.log([[[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]]])
    >>> round(float(MaskedCrossentropy()(np.array([[0, 1, -100]]), logits)), 4)  # -(ln 0.5 + ln 0.75) / 2
    0.4904

    Reference: Szegedy et al., arXiv 1512.00567, section 7 (label smoothing), as Vaswani et al., arXiv 1706.03762, section
    5.4, use it.
    """

    def __init__(self, label_smoothing=0.0, ignore_id=IGNORE_ID, name="masked_crossentropy"):
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1). Received: {label_smoothing}")
        super().__init__(name=name, reduction="mean_with_sample_weight", dtype="float32")
        self.label_smoothing = label_smoothing
        self.ignore_id = ignore_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        _, counted = split_ignored(y_true, self.ignore_id)
        weights = token_weights(counted, sample_weight)
        mask = keras_private.get_mask(y_pred)
        return mean_of_replicas(super().__call__(y_true, y_pred, weights), weights, mask)

    def call(self, y_true, y_pred):
        labels, counted = split_ignored(y_true, self.ignore_id)
        losses = cross_entropy(labels, y_pred, self.label_smoothing)
        # An ignored token may hold an infinity, which a weight of 0 would turn into NaN.
        return ops.where(counted, losses, 0.0)

    def get_config(self):
        return {"label_smoothing": self.label_smoothing, "ignore_id": self.ignore_id, "name": self.name}


def split_ignored(labels, ignore_id):
    """Labels as int32 with 0 in place of `ignore_id`, and a boolean of their shape: True where a label counts."""
    labels = ops.cast(labels, "int32")
    if ignore_id is None:
        return labels, ops.ones_like(labels, dtype="bool")
    counted = ops.not_equal(labels, ignore_id)
    return ops.where(counted, labels, 0), counted


def token_weights(counted, sample_weight):
    """Float32 weights of the shape of `counted`: 0 where it is False, else the weight of the row or token (None: 1)."""
    counted = ops.cast(counted, "float32")
    if sample_weight is None:
        return counted
    weights = ops.cast(sample_weight, "float32")
    # Weights of rows, (B,), stand for each of their tokens.
    while len(weights.shape) < len(counted.shape):
        weights = ops.expand_dims(weights, -1)
    return counted * weights


def cross_entropy(labels, logits, label_smoothing=0.0):
    """The cross-entropy of every token: integer labels `(...)` and float logits `(..., V)` to `(...)`."""
    losses = _surprise(labels, logits)
    if label_smoothing:
        spread = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        losses = (1 - label_smoothing) * losses + label_smoothing * spread
    return losses


def _surprise(labels, logits):
    """`-log_softmax(logits)` at the labels. A `(..., V)` is most of the memory of a large vocabulary: few are written."""
    if keras.backend.backend() == "tensorflow":
        # One kernel, which computes its gradient at once and keeps nothing else.
        return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    # Not log_softmax: XLA would write it.
    likely = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(likely, -1)
