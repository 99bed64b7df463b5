"""Normalization layers by name."""

from typing import Any

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Shape, Tensor


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

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
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
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
    "zero_centered_rms_norm": ZeroCenteredRMSNormalization,
    "batch_norm": keras.layers.BatchNormalization,
}
