"""Learned position embeddings."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Learned(keras.layers.Layer):
    """Learned position embeddings: `y_p = x_p + E_p`.

    Args:
        max_sequence_length: int >= 1. The number of positions in the table.
        initializer: initializer of the table. Defaults to normal with standard deviation 0.02.
        offset: int >= 0. The number of unused rows of the table before position 0: 2 in RoBERTa and BART.

    Call arguments:
        inputs: float `(B, T, D)`, T at most `max_sequence_length`.
        positions: int `(T,)` or `(B, T)`, or None for 0 .. T - 1.

    Returns:
        `(B, T, D)`, in the dtype of the layer.

    Raises:
        ValueError: `max_sequence_length` below 1; `offset` below 0; a static length above `max_sequence_length`.

    Example:

    >>> import numpy as np
    >>> Learned(4, initializer="ones")(np.zeros((1, 2, 3))).numpy().tolist()
    [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]

    Reference: Gehring et al., Convolutional Sequence to Sequence Learning, arXiv 1705.03122, section 3.1.
    """

    def __init__(
        self, max_sequence_length: int, initializer: Initializer = None, offset: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(max_sequence_length, int) or max_sequence_length < 1:
            raise ValueError(f"max_sequence_length must be a positive integer. Received: {max_sequence_length!r}")
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset must be an integer of at least 0. Received: {offset!r}")
        self.max_sequence_length = max_sequence_length
        self.offset = offset
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self._check_length(input_shape[1])
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.offset + self.max_sequence_length, input_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        self._check_length(inputs.shape[1])
        table = ops.convert_to_tensor(self.embeddings)
        if positions is None:
            rows = ops.expand_dims(table[self.offset : self.offset + ops.shape(inputs)[1]], 0)
        else:
            rows = ops.take(table, ops.cast(positions, "int32") + self.offset, axis=0)
            rows = ops.expand_dims(rows, 0) if len(rows.shape) == 2 else rows
        return inputs + ops.cast(rows, inputs.dtype)

    def _check_length(self, length):
        if length is not None and length > self.max_sequence_length:
            raise ValueError(
                f"A sequence has {length} tokens; the position table has {self.max_sequence_length} rows. Truncate longer "
                f"texts: pass max_length={self.max_sequence_length} to the tokenizer."
            )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "initializer": keras.initializers.serialize(self.initializer),
            "offset": self.offset,
        }
