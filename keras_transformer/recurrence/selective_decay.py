"""The decay of Mamba-2, Gated DeltaNet and Kimi Delta Attention, which depends on the token: `α_t = exp(-A Δ_t)` with
steps `Δ_t > 0`."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.types import LayerOptions, Shape, Tensor


class SelectiveDecay(keras.layers.Layer):
    """Steps and decay of each head: `Δ = softplus(x + b)`, `log α = -A Δ`, in float32 under every dtype policy.

    A starts at values evenly spread from 1 to 16, and b so that Δ is from 0.001 to 0.1 for x = 0.

    Args:
        channels: int >= 1. M, the number of steps of each head, which share its A. Defaults to 1.

    Call arguments:
        x: float `(B, T, N · M)`: M numbers for each head.

    Returns:
        Δ and log α, float32 `(B, T, N · M)` each.

    Weights: "log_speed" `(N,)`, which is log A, and "step_bias" `(N · M,)`, which is b.

    Example:

    >>> import numpy as np
    >>> steps, log_decay = SelectiveDecay()(np.zeros((1, 1, 3), "float32"))
    >>> np.allclose(steps, [0.001, 0.01, 0.1]), np.allclose(log_decay, [-0.001, -0.085, -1.6])
    (True, True)
    """

    def __init__(self, channels: int = 1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.channels = positive("channels", channels)

    def build(self, x_shape: Shape) -> None:
        heads = x_shape[-1] // self.channels
        steps = np.geomspace(0.001, 0.1, heads) if self.channels == 1 else np.geomspace(0.001, 0.1, self.channels)
        self.log_speed = self._vector("log_speed", np.log(np.linspace(1.0, 16.0, heads)))
        self.step_bias = self._vector("step_bias", np.resize(steps + np.log(-np.expm1(-steps)), x_shape[-1]))

    def _vector(self, name, start):
        return self.add_weight(
            name=name, shape=start.shape, initializer=lambda shape, dtype: ops.convert_to_tensor(start, dtype)
        )

    def call(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, log_speed, bias = (ops.cast(part, "float32") for part in (x, self.log_speed, self.step_bias))
        steps = ops.softplus(x + bias)
        speed = ops.exp(log_speed)
        return steps, -(speed if self.channels == 1 else ops.repeat(speed, self.channels)) * steps
