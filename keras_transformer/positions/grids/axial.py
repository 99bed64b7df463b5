"""Axial position embeddings."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Axial(keras.layers.Layer):
    """Axial position embeddings: adds learned vectors for the row and the column of each position in a grid.

    `y_p = x_p + [A_⌊p / w⌋; B_{p mod w}]`, with tables of h and w vectors for h · w positions.

    Args:
        shape: pair of ints >= 1: h and w. Defaults to (64, 64).
        widths: pair of ints >= 1 with sum D: widths of the row and the column vectors. None for halves.
        initializer: initializer of both tables. Defaults to normal with standard deviation 0.02.

    Call arguments:
        inputs: float `(B, T, D)`, T at most h · w.
        positions: int `(T,)` or `(B, T)`, or None for 0 .. T - 1.

    Returns:
        `(B, T, D)`, in the dtype of the layer.

    Raises:
        ValueError: sizes below 1; widths whose sum is not D; a static length above h · w.

    Example:

    >>> import numpy as np
    >>> layer = Axial((2, 3), initializer="ones")
    >>> layer(np.zeros((1, 4, 2))).numpy()[0, 3].tolist()
    [1.0, 1.0]

    Reference: Kitaev et al., Reformer, arXiv 2001.04451, appendix D, and its published code, which has dropout of whole
    rows and columns.
    """

    def __init__(
        self,
        shape: tuple[int, int] = (64, 64),
        widths: tuple[int, int] | None = None,
        initializer: Initializer = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, pair in (("shape", shape), ("widths", widths)):
            if pair is not None and (len(pair) != 2 or min(pair) < 1):
                raise ValueError(f"{name} must be two positive integers. Received: {pair}")
        self.shape = tuple(shape)
        self.widths = None if widths is None else tuple(widths)
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self.max_sequence_length = math.prod(self.shape)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self._check_length(input_shape[1])
        width = input_shape[-1]
        widths = self.widths or (width // 2, width - width // 2)
        if sum(widths) != width:
            raise ValueError(f"The sum of widths must be {width}, the width of the input. Received: {widths}")
        self.row_embeddings, self.column_embeddings = (
            self.add_weight(name=f"{name}_embeddings", shape=shape, initializer=self.initializer.clone())
            for name, shape in zip(("row", "column"), zip(self.shape, widths, strict=True), strict=True)
        )

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        self._check_length(inputs.shape[1])
        slots = ops.arange(ops.shape(inputs)[1], dtype="int32") if positions is None else positions
        slots = ops.cast(slots, "int32")
        slots = ops.expand_dims(slots, 0) if len(slots.shape) == 1 else slots
        rows, columns = slots // self.shape[1], slots % self.shape[1]
        tables = zip((self.row_embeddings, self.column_embeddings), (rows, columns), strict=True)
        vectors = [ops.take(ops.convert_to_tensor(table), index, axis=0) for table, index in tables]
        return inputs + ops.cast(ops.concatenate(vectors, axis=-1), inputs.dtype)

    def _check_length(self, length):
        if length is not None and length > self.max_sequence_length:
            raise ValueError(
                f"Sequence of {length} is longer than the {self.max_sequence_length} positions of shape {self.shape}."
            )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "shape": self.shape,
            "widths": self.widths,
            "initializer": keras.initializers.serialize(self.initializer),
        }
