"""The linear projections of attention and feed-forward layers."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.layers.ternary import is_ternary, prepare_kernel, saved_variables, ternary_product
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Shape, Tensor


@serializable
class Projection(keras.layers.EinsumDense):
    """`EinsumDense` over tokens, computed as one matrix product of rank 2.

    Weights, configuration, LoRA and quantization are those of `EinsumDense`. Only the computation differs: the tokens of all
    examples form the rows of one matrix, for which kernels are fastest and every export format has an op. Under a
    `TernaryPolicy` the weights are ternary: see `BitDense`.

    Args:
        equation: str, such as "btd,dnh->btnh": `(B, T, ...)` in, kernel, `(B, T, ...)` out.
        **options: those of `keras.layers.EinsumDense`.

    Call arguments:
        inputs: float `(B, T, ...)`.

    Returns:
        `(B, T, ...)`.

    Example:

    >>> import numpy as np
    >>> layer = Projection("btd,dnh->btnh", output_shape=(None, 2, 3), bias_axes="nh")
    >>> tuple(layer(np.ones((1, 5, 4))).shape)
    (1, 5, 2, 3)
    """

    ternary_scale: keras.Variable | None

    def __init__(self, equation: str, **options: Any) -> None:
        super().__init__(equation, **options)
        self.supports_masking = True  # Tokens are independent.

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if is_ternary(self):
            prepare_kernel(self)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        sizes = tuple(self.kernel.shape)
        contracted = len(inputs.shape) - 2
        rows, columns = math.prod(sizes[:contracted]), sizes[contracted:]
        length = ops.shape(inputs)[1]
        x = self._product(ops.reshape(inputs, (-1, rows)), ops.reshape(self.kernel, (rows, -1)))
        if self.bias is not None:
            x = ops.add(x, ops.reshape(self.bias, (-1,)))
        if self.activation is not None:
            x = self.activation(x)
        return ops.reshape(x, (-1, length, *columns))

    @property
    def variable_serialization_spec(self) -> dict[Any, list[str]]:
        return saved_variables(self, super().variable_serialization_spec)

    def _product(self, x, kernel):
        if not is_ternary(self):
            return ops.matmul(x, kernel)
        return ops.cast(ternary_product(x, kernel, self.ternary_scale), self.compute_dtype)

    def quantize(self, mode: str | None = None, type_check: bool = False, config: Any = None) -> None:
        """Quantizes like `EinsumDense`. Keras refuses subclasses of it by default; the weights here are the same."""
        return super().quantize(mode, type_check=False, config=config)


def token_projection(
    layer: keras.layers.Layer, name: str, width: int, use_bias: bool = True, activation: Activation = None
) -> Projection:
    """Returns an unbuilt projection of tokens to `width` channels, with the initializer and dtype of its parent layer.

    Args:
        layer: parent layer. Its `kernel_initializer` is cloned: a shared one would return equal weights.
        name: str.
        width: int.
        use_bias: bool.
        activation: as in `keras.layers.Dense`.
    """
    return _projection(layer, name, "btd,de->bte", (None, width), use_bias, activation)


def split_heads(layer: Any, name: str, num_heads: int, width: int) -> Projection:
    """Returns an unbuilt projection `(B, T, D)` to `(B, T, num_heads, width)`, with a bias if `layer.use_bias`."""
    return _projection(layer, name, "btd,dnh->btnh", (None, num_heads, width), layer.use_bias)


def join_heads(layer: Any, name: str, width: int) -> Projection:
    """Returns an unbuilt projection `(B, T, N, H)` to `(B, T, width)`: see `split_heads`."""
    return _projection(layer, name, "btnh,nhd->btd", (None, width), layer.use_bias)


def _projection(layer, name, equation, output_shape, use_bias, activation=None):
    return Projection(
        equation,
        output_shape=output_shape,
        bias_axes=equation.rpartition("bt")[2] if use_bias else None,
        activation=activation,
        kernel_initializer=layer.kernel_initializer.clone(),
        name=name,
        dtype=layer.dtype_policy,
    )
