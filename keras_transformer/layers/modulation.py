"""Scale and shift of tokens by a condition: the adaptive part of adaptive norms."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, DType, LayerOptions, Shape, Tensor


@serializable
class Modulation(keras.layers.Layer):
    """Modulation: `x (1 + γ(c)) + β(c)`, with `[β, γ] = SiLU(c) W + b` from a condition c, W and b initially zero.

    After a norm without weights of its own it is the adaptive layer norm (adaLN).

    Args:
        condition_dim: int >= 1, or None. Width C of the condition. Default None: the width of the inputs.

    Call arguments:
        inputs: float `(B, T, D)`.
        condition: float `(B, C)`, or `(B, T, C)` for a condition of each token.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `condition_dim` below 1.

    Example:

    >>> import numpy as np
    >>> layer = Modulation()
    >>> x, condition = np.array([[[1.0, 2.0]]]), np.array([[3.0, 4.0]])
    >>> layer(x, condition).numpy().tolist()
    [[[1.0, 2.0]]]
    >>> layer.set_weights([np.zeros((2, 4)), np.array([1.0, 0.0, 0.5, 2.0])])
    >>> layer(x, condition).numpy().tolist()
    [[[2.5, 6.0]]]

    Reference: Peebles and Xie, Scalable Diffusion Models with Transformers, arXiv 2212.09748, section 3.2; Perez et al.,
    FiLM, arXiv 1709.07871.
    """

    def __init__(self, condition_dim: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if condition_dim is not None and condition_dim < 1:
            raise ValueError(f"condition_dim must be at least 1. Received: {condition_dim}")
        self.condition_dim = condition_dim

    def build(self, inputs_shape: Shape, condition_shape: Shape | None = None) -> None:
        width = inputs_shape[-1]
        self._projection = condition_projection(2 * width, "projection", self.dtype_policy)
        self._projection.build((None, self.condition_dim or width))

    def call(self, inputs: Tensor, condition: Tensor) -> Tensor:
        shift, scale = ops.split(project_condition(self._projection, condition), 2, axis=-1)
        return inputs * (1.0 + scale) + shift

    def compute_output_shape(self, inputs_shape: Shape, condition_shape: Shape | None = None) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "condition_dim": self.condition_dim}


def condition_projection(units: int, name: str, dtype: DType) -> keras.layers.Dense:
    """A projection of a condition that is initially zero."""
    return keras.layers.Dense(units, kernel_initializer="zeros", name=name, dtype=dtype)


def project_condition(projection: keras.layers.Layer, condition: Tensor) -> Tensor:
    """Returns `projection(SiLU(condition))`, `(B, 1, units)` or, with a condition of each token, `(B, T, units)`."""
    projected = projection(ops.silu(condition))
    return ops.expand_dims(projected, 1) if len(condition.shape) == 2 else projected


def norm_without_weights(norm: keras.layers.Layer) -> keras.layers.Layer:
    """A copy of a norm without scale and offset of its own, for one that is modulated; RMS norms keep their scale."""
    config = norm.get_config()
    own = {name: False for name in ("center", "scale") if isinstance(config.get(name), bool)}
    return type(norm).from_config({**config, **own})
