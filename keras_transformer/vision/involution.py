"""Convolution inside out: a kernel for each pixel, which groups of channels share."""

from typing import Any

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


@serializable
class Involution(keras.layers.Layer):
    """`y_ij = Σ_uv h_ij[u, v] ⊙ x_(i+u, j+v)`, with a kernel h that each pixel makes: `h_ij = W_1 relu(norm(W_0 x_ij)) + b`.

    Each group of channels has one K x K kernel at a pixel. Outside of the image, x is zero. With strides the kernel is made
    of the mean of the pixels that it stands for. Time grows with `H · W · C · (C / r + K² / C_g · C / r + K²)`; memory, with
    gradients, with `H · W · C · K²`.

    Args:
        kernel_size: int >= 1, odd. K.
        strides: int >= 1, down and across.
        group_channels: int >= 1 that divides the channels. C_g: how many channels share a kernel.
        reduction_ratio: int >= 1 that divides the channels. r: how much narrower than the pixels the hidden layer is that
            makes their kernels.
        epsilon: float > 0. Of the batch norm in it.
        momentum: float in (0, 1). Of the same.
        kernel_initializer: of W_0 and W_1.

    Call arguments:
        inputs: float `(B, H, W, C)`; H and W may be unknown.

    Returns:
        `(B, ceil(H / strides), ceil(W / strides), C)`.

    Raises:
        ValueError: sizes out of range; channels that do not divide.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer = Involution(kernel_size=3, strides=2, group_channels=4)
    >>> tuple(layer(np.ones((1, 6, 8, 8), "float32")).shape)
    (1, 3, 4, 8)

    Reference: Li et al., Involution: Inverting the Inherence of Convolution for Visual Recognition, arXiv 2103.06255,
    section 3 and algorithm 1; 16 channels share a kernel, as in their networks.
    """

    def __init__(
        self,
        kernel_size: int = 7,
        strides: int = 1,
        group_channels: int = 16,
        reduction_ratio: int = 4,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if positive("kernel_size", kernel_size) % 2 == 0:
            raise ValueError(f"kernel_size must be odd: a kernel stands around a pixel. Received: {kernel_size}")
        self.kernel_size = kernel_size
        self.strides = positive("strides", strides)
        self.group_channels = positive("group_channels", group_channels)
        self.reduction_ratio = positive("reduction_ratio", reduction_ratio)
        self.epsilon = epsilon
        self.momentum = momentum
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._pooling = keras.layers.AveragePooling2D(strides, dtype=self.dtype_policy)
        self._norm = keras.layers.BatchNormalization(
            epsilon=epsilon, momentum=momentum, dtype=self.dtype_policy, name="norm"
        )

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[-1]
        for name in ("group_channels", "reduction_ratio"):
            if channels % getattr(self, name):
                raise ValueError(f"{name}={getattr(self, name)} must divide the {channels} channels.")
        hidden, taps = channels // self.reduction_ratio, self.kernel_size**2
        self._reduce = self._dense("reduce", hidden, use_bias=False)
        self._reduce.build(input_shape)
        self._norm.build((*input_shape[:-1], hidden))
        self._span = self._dense("span", channels // self.group_channels * taps)
        self._span.build((*input_shape[:-1], hidden))

    def _dense(self, name, width, use_bias=True):
        initializer, policy = self.kernel_initializer.clone(), self.dtype_policy
        return keras.layers.Conv2D(width, 1, use_bias=use_bias, kernel_initializer=initializer, dtype=policy, name=name)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden = ops.relu(self._norm(self._reduce(self._means(inputs)), training=training))
        kernels = self._span(hidden)  # (B, H, W, G · K²)
        return self._involve(inputs, kernels)

    def _means(self, x):
        """What each kernel is made of: the mean of the pixels from its own on that a stride covers, as far as they go."""
        step, sides = self.strides, x.shape[1:3]
        if step == 1:
            return x
        if None not in sides and not any(side % step for side in sides):
            return self._pooling(x)
        rest = ((0, 0), (0, step - 1), (0, step - 1), (0, 0))
        shares = self._pooling(ops.pad(ops.ones_like(x[:1, :, :, :1]), rest))
        return self._pooling(ops.pad(x, rest)) / shares

    def _involve(self, x, kernels):
        """The sum over the taps: at each, all pixels are shifted and weighed at once. No rank is above 4."""
        size, step, channels = self.kernel_size, self.strides, x.shape[-1]
        rows, columns = ops.shape(kernels)[1:3]
        groups = channels // self.group_channels
        # The rows of the groups of each pixel, one behind the other: (B, H, W · G, K²).
        kernels = ops.reshape(kernels, (-1, rows, columns * groups, size * size))
        reach = size // 2
        padded = ops.pad(x, ((0, 0), (reach, reach + step - 1), (reach, reach + step - 1), (0, 0)))
        total = None
        for tap in range(size * size):
            down, across = divmod(tap, size)
            shifted = padded[:, down : down + rows * step : step, across : across + columns * step : step]
            shifted = ops.reshape(shifted, (-1, rows, columns * groups, self.group_channels))
            weighed = shifted * kernels[..., tap : tap + 1]
            total = weighed if total is None else total + weighed
        return ops.reshape(total, (-1, rows, columns, channels))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        sides = (None if side is None else -(-side // self.strides) for side in input_shape[1:3])
        return (input_shape[0], *sides, input_shape[-1])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "group_channels": self.group_channels,
            "reduction_ratio": self.reduction_ratio,
            "epsilon": self.epsilon,
            "momentum": self.momentum,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
