"""The embedding of the time of a diffusion process."""

from __future__ import annotations

import math
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class TimestepEmbedding(keras.layers.Layer):
    """Timestep embedding: `W_2 SiLU(W_1 [cos(s t ω); sin(s t ω)] + b_1) + b_2`, with `ω_i = max_wavelength^(-2i / F)`.

    Args:
        hidden_dim: int >= 1. Width D of the embedding and of the hidden layer.
        frequency_dim: int >= 2, even. Number F of the sines and cosines. Default 256.
        time_scale: float > 0. The factor s of the times. Default 1000, for times in [0, 1].
        max_wavelength: float > 1. The largest wavelength divided by 2π. Default 10000.

    Call arguments:
        times: float `(B,)`. Angles are computed in float32 under every dtype policy.

    Returns:
        `(B, D)`.

    Raises:
        ValueError: `frequency_dim` odd or below 2.

    Example:

    >>> import numpy as np
    >>> tuple(TimestepEmbedding(8)(np.array([0.0, 0.5, 1.0])).shape)
    (3, 8)

    Reference: Peebles and Xie, arXiv 2212.09748, section 3.1, as in its published code; Nichol and Dhariwal,
    arXiv 2102.09672.
    """

    def __init__(
        self,
        hidden_dim: int,
        frequency_dim: int = 256,
        time_scale: float = 1000.0,
        max_wavelength: float = 10000.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        kwargs.setdefault("autocast", False)  # Half precision would round the times.
        super().__init__(**kwargs)
        if frequency_dim < 2 or frequency_dim % 2:
            raise ValueError(f"frequency_dim must be even and at least 2. Received: {frequency_dim}")
        self.hidden_dim = hidden_dim
        self.frequency_dim = frequency_dim
        self.time_scale = float(time_scale)
        self.max_wavelength = float(max_wavelength)
        self._hidden, self._output = (
            keras.layers.Dense(
                hidden_dim,
                activation=activation,
                kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
                dtype=self.dtype_policy,
                name=name,
            )
            for name, activation in (("hidden", "silu"), ("output", None))
        )

    def build(self, times_shape: Shape) -> None:
        self._hidden.build((times_shape[0], self.frequency_dim))
        self._output.build((times_shape[0], self.hidden_dim))

    def call(self, times: Tensor) -> Tensor:
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        rates = self.time_scale * self.max_wavelength ** -(np.arange(0, self.frequency_dim, 2) / self.frequency_dim)
        # cos(a) = sin(a + π/2): one sine for both.
        rates, phases = np.tile(rates, 2), np.repeat([math.pi / 2, 0.0], self.frequency_dim // 2)
        angles = ops.expand_dims(ops.cast(times, dtype), -1) * ops.convert_to_tensor(rates, dtype)
        waves = ops.sin(angles + ops.convert_to_tensor(phases, dtype))
        return self._output(self._hidden(ops.cast(waves, self.compute_dtype)))

    def compute_output_shape(self, times_shape: Shape) -> Shape:
        return (*times_shape, self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "frequency_dim": self.frequency_dim,
            "time_scale": self.time_scale,
            "max_wavelength": self.max_wavelength,
        }
