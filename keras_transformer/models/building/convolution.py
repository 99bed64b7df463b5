"""A convolution with a batch norm, of which backbones and necks of detectors are made."""

from __future__ import annotations

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.utils.types import Activation, Tensor


def convolution(
    x: Tensor,
    filters: int,
    kernel_size: int = 1,
    strides: int = 1,
    activation: Activation = None,
    *,
    depthwise: bool = False,
    frozen_norm: bool = False,
    epsilon: float = 1e-5,
    name: str,
) -> Tensor:
    """A convolution without bias, a batch norm and an activation, as torch computes them.

    Args:
        x: symbolic `(B, rows, columns, channels)`.
        filters: int. Channels of the output.
        kernel_size: int. An odd one has as many zeros on every side, whatever the stride; an even one has none.
        strides: int.
        activation: None for none.
        depthwise: bool. Whether each channel is convolved alone; `filters` is the number of channels.
        frozen_norm: bool. Whether the batch norm keeps its weights and statistics in training.
        epsilon: float > 0. Of the batch norm.
        name: str. The layers are called this with "_padding", "_convolution", "_norm" and "_activation".

    Returns:
        Symbolic `(B, rows / strides, columns / strides, filters)`.
    """
    if kernel_size > 1 and kernel_size % 2:
        x = keras.layers.ZeroPadding2D(kernel_size // 2, name=f"{name}_padding")(x)
    options = {"use_bias": False, "name": f"{name}_convolution"}
    if depthwise:
        x = keras.layers.DepthwiseConv2D(kernel_size, strides, **options)(x)
    else:
        x = keras.layers.Conv2D(filters, kernel_size, strides, **options)(x)
    norm = keras.layers.BatchNormalization(epsilon=epsilon, momentum=0.9, name=f"{name}_norm")
    norm.trainable = not frozen_norm
    return activated(norm(x), activation, f"{name}_activation")


def activated(x: Tensor, activation: Activation, name: str) -> Tensor:
    """`x` after an activation layer with this name; `x` itself for None."""
    return x if activation is None else keras.layers.Activation(get_activation(activation), name=name)(x)
