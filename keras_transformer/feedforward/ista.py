"""ISTA layer of CRATE."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention import capture
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class ISTA(keras.layers.Layer):
    """One step of the iterative shrinkage-thresholding algorithm (ISTA): `relu(z + η Dᵀ(z - D z) - η λ)`.

    D is a learned dictionary of D atoms, `(D, D)`. The output is a sparse, nonnegative code that replaces the token: use the
    layer after a norm and without a residual (`residual="none"`). Time grows with `T · D²`.

    Args:
        step_size: float > 0. η.
        sparsity_weight: float >= 0. λ, the weight of the sparsity penalty.
        kernel_initializer: initializer of the dictionary.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`, nonnegative.

    Raises:
        ValueError: `step_size` not above 0, or a negative `sparsity_weight`.

    Weights: "dictionary" `(D, D)`. Tokens are rows, so that D z is computed as `z Dᵀ`.

    Example:

    >>> import numpy as np
    >>> layer = ISTA(step_size=0.5, sparsity_weight=0.2, kernel_initializer="zeros")
    >>> layer(np.array([[[1.0, -1.0, 0.05]]])).numpy().round(3).tolist()
    [[[0.8999999761581421, 0.0, 0.0]]]

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 2.4; η and λ, and
    the step from the normalized token, as in their code.
    """

    def __init__(
        self,
        step_size: float = 0.1,
        sparsity_weight: float = 0.1,
        kernel_initializer: Initializer = "he_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if step_size <= 0 or sparsity_weight < 0:
            raise ValueError(
                "step_size must be above 0, and sparsity_weight must be at least 0. "
                f"Received: {step_size}, {sparsity_weight}"
            )
        self.step_size = step_size
        self.sparsity_weight = sparsity_weight
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1], input_shape[-1])
        self.dictionary = self.add_weight(name="dictionary", shape=shape, initializer=self.kernel_initializer.clone())

    def call(self, inputs: Tensor) -> Tensor:
        width, length = inputs.shape[-1], ops.shape(inputs)[1]
        dictionary = ops.convert_to_tensor(self.dictionary)
        z = ops.reshape(inputs, (-1, width))
        missing = z - ops.matmul(z, ops.transpose(dictionary))
        z = ops.relu(z + self.step_size * (ops.matmul(missing, dictionary) - self.sparsity_weight))
        code = ops.reshape(z, (-1, length, width))
        if capture.is_captured(self):  # Read by `training.coding_rates`.
            capture.record(self, code)
        return code

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "step_size": self.step_size,
            "sparsity_weight": self.sparsity_weight,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
