"""The loss of connectionist temporal classification."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.training.losses.cross_entropy import split_ignored
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor

# A frame with such a logit is padding.
_PADDING_LOGIT = -1e8


@serializable
class CTCLoss(keras.losses.Loss):
    """CTC loss: `-log Σ_a Π_t softmax(logits_t)[a_t]`, over all alignments a that give the text.

    An alignment has a token or the blank for each frame; its text is without repetitions and then without blanks. The loss
    of a batch is the mean over its rows. Lengths are read from the logits: frames with a logit below -1e8 are padding, as
    those of `tasks.SpeechRecognizer`.

    A recording that is too short for its text has no alignment; it has loss 0 and no gradient.

    Args:
        blank_id: int >= 0. The id of the blank. Default 0.
        ignore_id: int. Label of the padding of texts, which must follow their tokens. Default -100.
        per_token: bool. Whether the loss of a row is divided by the length of its text, as torch's "mean" does.
            Default False.
        name: str. Default "ctc_loss".

    Call arguments:
        y_true: integers `(B, L)`: texts without blanks, padded with `ignore_id`.
        y_pred: logits `(B, T, V)` of any float dtype; computed in float32.

    Returns:
        The loss, a float32 scalar.

    Example:

    >>> import numpy as np
    >>> logits = np.log([[[0.4, 0.6], [0.5, 0.5]]])
    >>> round(float(CTCLoss()(np.array([[1]]), logits)), 4)  # -ln(0.6 x 0.5 + 0.6 x 0.5 + 0.4 x 0.5)
    0.2231

    Reference: Graves et al., Connectionist Temporal Classification, ICML 2006, section 4; computed by `keras.ops.ctc_loss`.
    """

    def __init__(
        self, blank_id: int = 0, ignore_id: int = IGNORE_ID, per_token: bool = False, name: str = "ctc_loss"
    ) -> None:
        super().__init__(name=name, reduction="sum_over_batch_size", dtype="float32")
        self.blank_id = blank_id
        self.ignore_id = ignore_id
        self.per_token = per_token

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, counted = split_ignored(y_true, self.ignore_id)
        labels = ops.where(counted, labels, self.blank_id)
        lengths = ops.sum(ops.cast(counted, "int32"), axis=1)
        frames = ops.sum(ops.cast(ops.greater(ops.min(y_pred, axis=-1), _PADDING_LOGIT), "int32"), axis=1)
        # Equal neighbors need a blank between them.
        repeated = ops.logical_and(ops.equal(labels[:, 1:], labels[:, :-1]), counted[:, 1:])
        possible = ops.less_equal(lengths + ops.sum(ops.cast(repeated, "int32"), axis=1), frames)
        # The loss of an empty text instead, whose gradient is finite.
        given = ops.where(possible, lengths, 0)
        losses = ops.ctc_loss(labels, y_pred, given, frames, mask_index=self.blank_id)
        losses = ops.where(possible, losses, 0.0)
        return losses / ops.cast(ops.maximum(lengths, 1), losses.dtype) if self.per_token else losses

    def get_config(self) -> Config:
        names = ("blank_id", "ignore_id", "per_token", "name")
        return {name: getattr(self, name) for name in names}
