"""Layers that Keras quantized to float8, of numbers that are rounded in float32: no converter has the type.

`float8_e4m3fn` has 3 bits of mantissa, the largest number 448, and equal steps of 2**-9 below 2**-6.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.utils.types import Tensor

_LARGEST = 448.0
# The exponents of numbers, from that of the first step that is wider than the least one.
_EXPONENTS = range(-5, 9)
_LEAST_STEP = 2.0**-9


def on_rounded_numbers(
    layer: keras.layers.Dense | keras.layers.EinsumDense, inputs: Tensor, training: bool | None = None
) -> Tensor:
    """What a layer in float8 computes of its inputs and its kernel, without the type."""
    x = _scaled(inputs, layer.inputs_scale)
    kernel = _scaled(ops.convert_to_tensor(layer.kernel), layer.kernel_scale)
    is_einsum = isinstance(layer, keras.layers.EinsumDense)
    outputs = ops.einsum(layer.equation, x, kernel) if is_einsum else ops.matmul(x, kernel)
    if layer.bias is not None:
        outputs = ops.add(outputs, _in_8_bits(ops.convert_to_tensor(layer.bias)))
    return outputs if layer.activation is None else layer.activation(outputs)


def _in_8_bits(x: Tensor) -> Tensor:
    """Numbers with 8 bits of mantissa, as a bias that Keras rounds to bfloat16 for kernels of a GPU."""
    shifted = x * (2.0**16 + 1)
    return shifted - (shifted - x)


def _scaled(x: Tensor, scale: keras.Variable) -> Tensor:
    """Numbers as Keras quantizes and dequantizes them by a scale."""
    factor = ops.cast(scale, x.dtype)
    return rounded(ops.clip(x / factor, -_LARGEST, _LARGEST)) * factor


def rounded(x: Tensor) -> tf.Tensor:
    """Numbers up to 448 as `float8_e4m3fn` has them, those between two of its numbers as the nearest, or the even one.

    Example:

    >>> rounded(tf.constant([0.3, -17.0, 19.0, 1e-3])).numpy().tolist()
    [0.3125, -16.0, 20.0, 0.001953125]
    """
    size, step = tf.abs(x), tf.ones_like(x) * _LEAST_STEP
    for exponent in _EXPONENTS:
        step += tf.cast(size >= 2.0**exponent, x.dtype) * 2.0 ** (exponent - 4)
    return tf.round(x / step) * step
