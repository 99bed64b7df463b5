"""Normalization layers: those of Keras, with gradients in closed form in training, one more, and all by name."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.backend.variable_values import value_of
from keras_transformer.layers.norm_gradients import layer_normalization, rms_normalization
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` whose training step is shorter: see `norm_gradients.layer_normalization`.

    Values, weights and arguments are those of Keras's layer. Over other axes than the last it is the same layer.

    Args:
        axis, epsilon, **options: those of `keras.layers.LayerNormalization`.

    Call arguments:
        inputs: float `(..., D)`.

    Returns:
        `(..., D)`.

    Example:

    >>> import numpy as np
    >>> np.array(LayerNormalization(epsilon=1e-6)(np.array([[1.0, 3.0]]), training=True)).round(3).tolist()
    [[-1.0, 1.0]]

    Reference: Ba et al., arXiv 1607.06450.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if not training or self.rms_scaling or not _is_last(self.axis, inputs):
            return super().call(inputs)
        gamma, beta = (None if each is None else value_of(each) for each in (self.gamma, self.beta))
        return ops.cast(layer_normalization(inputs, gamma, beta, self.epsilon), self.compute_dtype)


@serializable
class RMSNormalization(keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization` whose training step is shorter: see `norm_gradients.rms_normalization`.

    Values, weights and arguments are those of Keras's layer. Over other axes than the last it is the same layer.

    Args:
        axis, epsilon, **options: those of `keras.layers.RMSNormalization`.

    Call arguments:
        inputs: float `(..., D)`.

    Returns:
        `(..., D)`.

    Example:

    >>> import numpy as np
    >>> np.array(RMSNormalization()(np.array([[3.0, 4.0]]), training=True)).round(3).tolist()
    [[0.8489999771118164, 1.13100004196167]]

    Reference: Zhang and Sennrich, arXiv 1910.07467.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if not training or not _is_last(self.axis, inputs):
            return super().call(inputs)
        return rms_normalization(inputs, value_of(self.scale), self.epsilon)


def _is_last(axis, inputs):
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return len(axes) == 1 and axes[0] in (-1, len(inputs.shape) - 1)


@serializable
class ZeroCenteredRMSNormalization(keras.layers.Layer):
    """RMS norm whose weight is stored as its difference from 1: `x / √(mean(x²) + ε) · (1 + w)`.

    Its outputs are those of `keras.layers.RMSNormalization`, but weight decay pulls the scale to 1 instead of 0. Computed in
    float32 under every dtype policy.

    Args:
        epsilon: float > 0. Default 1e-6.

    Call arguments:
        inputs: float `(..., D)`.

    Returns:
        `(..., D)`.

    Example:

    >>> import numpy as np
    >>> ZeroCenteredRMSNormalization()(np.array([[3.0, 4.0]])).numpy().round(3).tolist()
    [[0.8489999771118164, 1.13100004196167]]

    Reference: Gemma Team, arXiv 2403.08295, section 2, and its code; Zhang and Sennrich, arXiv 1910.07467 (RMSNorm).
    """

    scale: keras.Variable

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        scale = 1.0 + ops.cast(self.scale, "float32")
        y = ops.rms_normalization(ops.cast(inputs, "float32"), scale=scale, axis=-1, epsilon=self.epsilon)
        return ops.cast(y, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "epsilon": self.epsilon}


NORMS: dict[str, type[keras.layers.Layer]] = {
    "layer_norm": LayerNormalization,
    "rms_norm": RMSNormalization,
    "zero_centered_rms_norm": ZeroCenteredRMSNormalization,
    "batch_norm": keras.layers.BatchNormalization,
}
