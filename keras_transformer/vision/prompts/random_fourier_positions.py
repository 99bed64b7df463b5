"""Random Fourier features of coordinates."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class RandomFourierPositions(keras.layers.Layer):
    """Position vectors of points in an image by random spatial frequencies, which are drawn once and not trained.

        p(x) = [sin(2π (2x - 1) F), cos(2π (2x - 1) F)], F ~ N(0, 1)

    Args:
        hidden_dim: int, a multiple of 2. D.
        initializer: initializer of the frequencies F, `(2, D / 2)`. Defaults to normal with standard deviation 1.

    Call arguments:
        inputs: float `(..., 2)`: x and y, as shares of the width and height of an image.

    Returns:
        `(..., D)`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of 2.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(RandomFourierPositions(8)(np.zeros((5, 3, 2))).shape)
    (5, 3, 8)

    Reference: Tancik et al., Fourier Features Let Networks Learn High Frequency Functions, arXiv 2006.10739, section 5;
    Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A.
    """

    frequencies: keras.Variable

    def __init__(self, hidden_dim: int, initializer: Initializer = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if positive("hidden_dim", hidden_dim) % 2:
            raise ValueError(f"hidden_dim must be a multiple of 2. Received: {hidden_dim!r}")
        self.hidden_dim = hidden_dim
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=1.0))

    def build(self, input_shape: Shape) -> None:
        self.frequencies = self.add_weight(
            name="frequencies",
            shape=(2, self.hidden_dim // 2),
            initializer=keras.initializers.get(self.initializer),
            trainable=False,
            autocast=False,
        )

    def call(self, inputs: Tensor) -> Tensor:
        # In float32 under every policy: the angles are large.
        angles = ops.matmul(2.0 * ops.cast(inputs, "float32") - 1.0, ops.cast(self.frequencies, "float32"))
        angles = angles * (2 * math.pi)
        return ops.cast(ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1), self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "initializer": keras.initializers.serialize(self.initializer),
        }
