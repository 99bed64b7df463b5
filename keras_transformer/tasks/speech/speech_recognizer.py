"""Speech recognition with connectionist temporal classification (CTC)."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_count, check_tokens, token_mask
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.tasks.text.span_answerer import PADDING_LOGIT
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


def SpeechRecognizer(
    backbone: keras.Model,
    vocabulary_size: int,
    *,
    blank_id: int = 0,
    dropout: float = 0.0,
    name: str = "speech_recognizer",
) -> keras.Model:
    """Speech recognizer: a linear head over each frame, for connectionist temporal classification (CTC).

    `training.CTCLoss` trains it on texts without alignment. `generation.ctc_greedy` and `generation.ctc_beam_search` read
    texts from the logits of the model or of its exported files, and `tasks.transcribe` from recordings.

    Padding is blank with probability 1, so that it neither adds to a text nor to a loss: losses and texts are those of the
    true lengths, and nothing but the logits is needed for either.

    Args:
        backbone: `keras.Model` to frames `(B, T, D)`, such as `models.Wav2Vec2`.
        vocabulary_size: int >= 2. V: letters or other tokens, and the blank.
        blank_id: int in [0, V). The id of the blank. Default 0.
        dropout: float in [0, 1). Of the frames before the head.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "logits", float32 `(B, T, V)`, under every dtype policy; at padding 0 for the
        blank and -1e9 for other tokens.

    Raises:
        ValueError: `vocabulary_size` below 2, a `blank_id` out of range, or a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> SpeechRecognizer(models.Wav2Vec2(models.Size(1, 32, 2, 64)), vocabulary_size=28).output_shape
    (None, None, 28)

    Reference: Graves et al., Connectionist Temporal Classification, ICML 2006, section 3; as the head of wav2vec 2.0:
    Baevski et al., arXiv 2006.11477, section 3.3.
    """
    check_tokens(backbone)
    check_count("vocabulary_size", vocabulary_size)
    if vocabulary_size < 2 or isinstance(blank_id, bool) or not 0 <= blank_id < vocabulary_size:
        raise ValueError(
            f"vocabulary_size must be at least 2, and blank_id below it. Received: {vocabulary_size!r} and {blank_id!r}"
        )
    x = Dropout(dropout, name="head_dropout")(backbone.output)
    mask = token_mask(backbone)
    x = keras.layers.Dense(vocabulary_size, dtype="float32", name="logits" if mask is None else "frame_logits")(x)
    x = x if mask is None else BlankPadding(blank_id, dtype="float32", name="logits")(x, padding_mask=mask)
    return TaskModel(backbone.input, x, name=name)


@serializable
class BlankPadding(keras.layers.Layer):
    """Sets the logits of padding to 0 for the blank and -1e9 for other tokens.

    Args:
        blank_id: int. Default 0.

    Call arguments:
        inputs: float `(B, T, V)`.
        padding_mask: boolean `(B, T)`, True = a real frame.

    Returns:
        `(B, T, V)`.

    Example:

    >>> import numpy as np
    >>> BlankPadding(1)(np.ones((1, 2, 2)), padding_mask=np.array([[True, False]])).numpy().tolist()
    [[[1.0, 1.0], [-1000000000.0, 0.0]]]
    """

    def __init__(self, blank_id: int = 0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.blank_id = blank_id

    def call(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        tokens = ops.reshape(ops.arange(inputs.shape[-1], dtype="int32"), (1, 1, -1))
        blank = ops.cast(ops.where(ops.equal(tokens, self.blank_id), 0.0, PADDING_LOGIT), inputs.dtype)
        return ops.where(ops.expand_dims(ops.cast(padding_mask, "bool"), -1), inputs, blank)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "blank_id": self.blank_id}
