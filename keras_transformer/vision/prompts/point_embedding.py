"""Tokens of the points of prompts."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import JsonObject, LayerOptions, Shape, Tensor

# The labels of points, in the order of their vectors; every other label is padding.
LABELS = {"background": 0, "foreground": 1, "top_left": 2, "bottom_right": 3}
NOT_A_POINT = -1
PADDING = -10


@serializable
class PointEmbedding(keras.layers.Layer):
    """Tokens of points: the position vector of each, and a learned vector of its label.

    A box is two points, its corners. "Not a point" is a learned vector alone, which prompts without a box end with.

    Call arguments:
        inputs: float `(B, N, D)`: position vectors, as of `RandomFourierPositions`.
        labels: int32 `(B, N)`: 0 for background, 1 for foreground, 2 and 3 for the first and the last corner of a box, -1
            for "not a point"; every other label is padding, with a token of zeros, which `PointMask` masks.

    Returns:
        `(B, N, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(PointEmbedding()(np.zeros((5, 3, 8)), np.array([[0, 1, -1]] * 5)).shape)
    (5, 3, 8)

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A (prompt encoder), as in its published code.
    """

    embeddings: keras.Variable
    not_a_point: keras.Variable
    # The exclusive upper limit of labels, for probes of exported files.
    vocabulary_size = len(LABELS)

    def build(self, inputs_shape: Shape, labels_shape: Shape | None = None) -> None:
        initializer = keras.initializers.RandomNormal(stddev=1.0)
        width = inputs_shape[-1]
        self.embeddings = self.add_weight(name="embeddings", shape=(len(LABELS), width), initializer=initializer)
        self.not_a_point = self.add_weight(name="not_a_point", shape=(width,), initializer=initializer.clone())

    def call(self, inputs: Tensor, labels: Tensor) -> Tensor:
        labels = ops.expand_dims(ops.cast(labels, "int32"), -1)
        is_point = ops.cast(ops.logical_and(labels >= 0, labels < len(LABELS)), inputs.dtype)
        # One label at a time: -1 and padding are in no table.
        vectors = inputs * is_point
        for label in range(len(LABELS)):
            vectors = vectors + _where(labels, label, inputs.dtype) * ops.cast(self.embeddings[label], inputs.dtype)
        return vectors + _where(labels, NOT_A_POINT, inputs.dtype) * ops.cast(self.not_a_point, inputs.dtype)

    def compute_output_shape(self, inputs_shape: Shape, labels_shape: Shape | None = None) -> Shape:
        return inputs_shape


@serializable
class PointMask(keras.layers.Layer):
    """The mask of the tokens of a prompt: tokens that are always there, then those of points.

    Args:
        num_first_tokens: int >= 0. Tokens before those of the points. Default 0.

    Call arguments:
        labels: int32 `(B, N)`, as of `PointEmbedding`.

    Returns:
        boolean `(B, num_first_tokens + N)`, False for padding.

    Example:

    >>> import numpy as np
    >>> np.asarray(PointMask(1)(np.array([[1, -1, -10]]))).tolist()
    [[True, True, True, False]]
    """

    def __init__(self, num_first_tokens: int = 0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_first_tokens = num_first_tokens

    def call(self, labels: Tensor) -> Tensor:
        labels = ops.pad(ops.cast(labels, "int32"), [[0, 0], [self.num_first_tokens, 0]])
        return ops.logical_and(labels >= NOT_A_POINT, labels < len(LABELS))

    def compute_output_spec(self, labels: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(labels.shape), dtype="bool")

    def compute_output_shape(self, labels_shape: Shape) -> Shape:
        length = labels_shape[1]
        return (labels_shape[0], None if length is None else self.num_first_tokens + length)

    def get_config(self) -> JsonObject:
        return {**super().get_config(), "num_first_tokens": self.num_first_tokens}


def _where(labels, label, dtype):
    return ops.cast(ops.equal(labels, label), dtype)
