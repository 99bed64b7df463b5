"""Convolutional position embedding."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.audio.speech.frames import hide_padding
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, Shape, Tensor


@serializable
class ConvolutionalPosition(keras.layers.Layer):
    """Convolutional position embedding: `x + activation(conv(x))`, with a wide convolution over groups of channels.

    Each group of channels is a convolution of its own, because TensorFlow has no gradient of grouped convolutions on CPUs.

    Args:
        kernel_size: int >= 1. Default 128. Frame `t` sees `kernel_size // 2` frames before it.
        num_groups: int that divides the width. Default 16.
        activation: Default "gelu".

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real. Padding is set to 0 before.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an argument out of its range; groups that do not divide the width.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(ConvolutionalPosition(kernel_size=4, num_groups=2)(np.zeros((1, 5, 8), "float32")).shape)
    (1, 5, 8)

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 2 and 4.2; Mohamed et al., arXiv 1904.11660. The
    published code trains the norms of the kernels as weights of their own (weight normalization); here the kernel is one
    weight, and `checkpoints` converts between them.
    """

    def __init__(
        self, kernel_size: int = 128, num_groups: int = 16, activation: Activation = "gelu", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("kernel_size", kernel_size), ("num_groups", num_groups)):
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        self.kernel_size = kernel_size
        self.num_groups = num_groups
        self.activation = get_activation(activation)

    def build(self, inputs_shape: Shape) -> None:
        width = inputs_shape[-1]
        if width % self.num_groups:
            raise ValueError(f"num_groups must divide the width {width}. Received: {self.num_groups}")
        self._width = width // self.num_groups
        self._convolutions = []
        for index in range(self.num_groups):
            layer = keras.layers.Conv1D(
                self._width, self.kernel_size, dtype=self.dtype_policy, name=f"convolution_{index}"
            )
            layer.build((*inputs_shape[:2], self._width))
            self._convolutions.append(layer)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        inputs = hide_padding(inputs, padding_mask)
        # Keras's "same" pads an even kernel on the other side.
        x = ops.pad(inputs, ((0, 0), (self.kernel_size // 2, (self.kernel_size - 1) // 2), (0, 0)))
        starts = range(0, self.num_groups * self._width, self._width)
        parts = [
            convolution(x[:, :, start : start + self._width])
            for convolution, start in zip(self._convolutions, starts, strict=True)
        ]
        return inputs + self.activation(ops.concatenate(parts, axis=-1))

    def compute_output_shape(self, inputs_shape: Shape, *args: Any, **kwargs: Any) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "num_groups": self.num_groups,
            "activation": keras.activations.serialize(self.activation),
        }
