"""The linear layer of BitNet b1.58."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.ternary import prepare_kernel, saved_variables, ternary_product
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Initializer, LayerOptions, Shape, Tensor


@serializable
class BitDense(keras.layers.Dense):
    """Linear layer of BitNet b1.58, with ternary weights and 8-bit activations: `activation(γ / s · round(s x) t + b)`.

    t is W divided by γ, the mean of its absolute values, rounded and clipped to {-1, 0, 1}; s is 127 divided by the largest
    |x| of each token. Training updates the real W: both roundings have straight-through gradients. For blocks, which create
    their own projections, use `dtype=TernaryPolicy()`, or make a `ternary_twin` of the model.

    Args:
        units: int >= 1.
        activation: as for `keras.layers.Dense`.
        use_bias: bool. Defaults to False.
        kernel_initializer: initializer of W.
        **kwargs: the other arguments of `keras.layers.Dense`.

    Call arguments:
        inputs: float `(..., D)`. BitNet normalizes them: use a norm before this layer, as in pre-norm blocks.

    Returns:
        `(..., units)`.

    Export: t has 2 bits per weight in ONNX and TFLite files, and for the same input the output of the layer is the same, bit
    for bit. Inputs come from norms and softmax, where runtimes differ by float32 rounding. Close to a half, that changes
    the result of rounding by one of 127 steps; hence the tolerance for these models is wider.

    Example:

    >>> import numpy as np
    >>> layer = BitDense(2, kernel_initializer="ones")
    >>> layer(np.array([[127.0, -3.0, 1.4]])).numpy().round(4).tolist()
    [[125.0, 125.0]]

    Reference: Ma et al., The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits, arXiv 2402.17764, section 2.
    Deviation: without the norm that the authors' code has in the layer.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            units, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer, **kwargs
        )

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        prepare_kernel(self)

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        return saved_variables(self, super().variable_serialization_spec)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = ops.reshape(inputs, (-1, inputs.shape[-1]))
        x = ops.cast(ternary_product(x, self.kernel, self.ternary_scale), self.compute_dtype)
        if self.bias is not None:
            x = ops.add(x, self.bias)
        if self.activation is not None:
            x = self.activation(x)
        return ops.reshape(x, (*ops.shape(inputs)[:-1], self.units))
