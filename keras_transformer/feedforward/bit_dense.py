"""The linear layer of BitNet b1.58."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.ternary import prepare_kernel, saved_variables, ternary_product
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Initializer, Shape, Tensor


@serializable
class BitDense(keras.layers.Dense):
    """`Dense` with weights out of {-γ, 0, γ} and activations in 8 bits: `activation(γ / s · round(s x) t + b)`.

    t is W divided by γ, the mean of its absolute values, rounded and clipped to {-1, 0, 1}; s is 127 by the largest |x| of
    each token. Training moves the real W: gradients pass through both roundings as if they were not there. Where blocks
    make their own maps, give them `dtype=TernaryPolicy()` instead, or make a `ternary_twin` of the model.

    Args:
        units: int >= 1.
        activation: as for `keras.layers.Dense`.
        use_bias: bool. Default False.
        kernel_initializer: of W.
        **kwargs: the other options of `keras.layers.Dense`.

    Call arguments:
        inputs: float `(..., D)`. BitNet's are normalized: put a norm in front, as pre-norm blocks have it.

    Returns:
        `(..., units)`.

    Export: t lies in the file in 2 bits a weight in ONNX and TFLite, and what comes out of the layer is the same, bit for
    bit, for what goes in. What goes in comes from norms and softmax, where runtimes differ by the noise of float32; a number
    that this puts on the other side of a half is rounded to the next of 127 steps, which is why models are held to a wider
    tolerance than others.

    Example:

    >>> import numpy as np
    >>> layer = BitDense(2, kernel_initializer="ones")
    >>> layer(np.array([[127.0, -3.0, 1.4]])).numpy().round(4).tolist()
    [[125.0, 125.0]]

    Reference: Ma et al., The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits, arXiv 2402.17764, section 2,
    without the norm that its authors' code has inside of the layer.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer, **kwargs
        )

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        prepare_kernel(self)

    @property
    def variable_serialization_spec(self) -> Any:
        return saved_variables(self, super().variable_serialization_spec)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = ops.reshape(inputs, (-1, inputs.shape[-1]))
        x = ops.cast(ternary_product(x, self.kernel, self.ternary_scale), self.compute_dtype)
        if self.bias is not None:
            x = ops.add(x, self.bias)
        if self.activation is not None:
            x = self.activation(x)
        return ops.reshape(x, (*ops.shape(inputs)[:-1], self.units))
