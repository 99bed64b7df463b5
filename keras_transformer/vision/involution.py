"""Involution: convolution with a kernel for each pixel that is shared by groups of channels."""

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


@serializable
class Involution(keras.layers.Layer):
    """Involution: `y_ij = Σ_uv h_ij[u, v] ⊙ x_(i+u, j+v)`, with the kernel `h_ij = W_1 relu(norm(W_0 x_ij)) + b`.

    Each group of channels has one K x K kernel per pixel. x is zero outside of the image. With strides, the kernel is
    computed from the mean of the pixels that the stride covers. Time grows with `H · W · C · (C / r + K² / C_g · C / r +
    K²)`; memory, with gradients, with `H · W · C · K²`.

    Args:
        kernel_size: int >= 1, odd. K. Default 7.
        strides: int >= 1, along both axes. Default 1.
        group_channels: int >= 1 that divides the channels. C_g: the number of channels that share a kernel. Default 16.
        reduction_ratio: int >= 1 that divides the channels. r: the hidden layer of the kernel has C / r channels. Default 4.
        epsilon: float > 0. Epsilon of the batch norm.
        momentum: float in (0, 1). Momentum of the batch norm.
        kernel_initializer: of W_0 and W_1.

    Call arguments:
        inputs: float `(B, H, W, C)`; H and W may be unknown.

    Returns:
        `(B, ceil(H / strides), ceil(W / strides), C)`.

    Raises:
        ValueError: sizes out of range; channels that are not divisible by `group_channels` and `reduction_ratio`.

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
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        if positive("kernel_size", kernel_size) % 2 == 0:
            raise ValueError(f"kernel_size must be odd. Received: {kernel_size}")
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
        """Averages the pixels that a stride covers, from which the kernels are computed."""
        step, sides = self.strides, x.shape[1:3]
        if step == 1:
            return x
        if None not in sides and not any(side % step for side in sides):
            return self._pooling(x)
        rest = ((0, 0), (0, step - 1), (0, step - 1), (0, 0))
        shares = self._pooling(ops.pad(ops.ones_like(x[:1, :, :, :1]), rest))
        return self._pooling(ops.pad(x, rest)) / shares

    def _involve(self, x, kernels):
        """Sums over the kernel's taps, with all pixels shifted and weighted at once. No tensor has a rank above 4."""
        size, step, channels = self.kernel_size, self.strides, x.shape[-1]
        rows, columns = ops.shape(kernels)[1:3]
        groups = channels // self.group_channels
        # The groups of each pixel are consecutive: (B, H, W · G, K²).
        kernels = ops.reshape(kernels, (-1, rows, columns * groups, size * size))
        reach = size // 2
        padded = ops.pad(x, ((0, 0), (reach, reach + step - 1), (reach, reach + step - 1), (0, 0)))
        total = None
        for tap in range(size * size):
            down, across = divmod(tap, size)
            shifted = padded[:, down : down + rows * step : step, across : across + columns * step : step]
            shifted = ops.reshape(shifted, (-1, rows, columns * groups, self.group_channels))
            weighted = shifted * kernels[..., tap : tap + 1]
            total = weighted if total is None else total + weighted
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
