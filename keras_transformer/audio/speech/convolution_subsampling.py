"""Depthwise convolutions that shorten spectrograms, as of FastConformer."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.audio.speech.frames import num_frames
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class ConvolutionSubsampling(keras.layers.Layer):
    """Subsampling of spectrograms by strided convolutions over time and frequency, and a projection.

    The first convolution has one input channel; each further one is depthwise, then pointwise. All end with a ReLU. Each
    divides the number of frames by its stride: 3 convolutions of stride 2 make one frame of 8.

    Args:
        hidden_dim: int >= 1. Width of the frames D.
        num_channels: int >= 1. Channels of the convolutions C. Default 256.
        num_layers: int >= 1. Number of strided convolutions. Default 3.
        kernel_size: odd int. Default 3. Convolutions are padded with `kernel_size // 2` on all sides.
        stride: int >= 1. Default 2.

    Call arguments:
        inputs: float `(B, T, M)`: spectrograms.
        padding_mask: boolean `(B, T)`, True = a real frame, padded on the right; None for all real.

    Returns:
        Pair of the frames `(B, T', D)` and their padding mask, boolean `(B, T')`, with `T' = ceil(T / stride)` for each
        convolution of stride 2.

    Raises:
        ValueError: an argument out of its range.
        AudioError: inputs of another rank, or without a fixed number of bins.

    Masking: padding is set to 0 before and after every convolution, so that a row of a batch gives what it gives alone.
    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> frames, mask = ConvolutionSubsampling(6, num_channels=4)(np.zeros((1, 20, 16), "float32"))
    >>> tuple(frames.shape), tuple(mask.shape)
    ((1, 3, 6), (1, 3))

    Reference: Rekesh et al., Fast Conformer, arXiv 2305.05084, section 2.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_channels: int = 256,
        num_layers: int = 3,
        kernel_size: int = 3,
        stride: int = 2,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        given = {"hidden_dim": hidden_dim, "num_channels": num_channels, "num_layers": num_layers, "stride": stride}
        for name, value in {**given, "kernel_size": kernel_size}.items():
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd. Received: {kernel_size}")
        self.hidden_dim = hidden_dim
        self.num_channels = num_channels
        self.num_layers = num_layers
        self.kernel_size = kernel_size
        self.stride = stride
        # A probe of an export reaches several frames.
        self.probe_length = 24 * stride**num_layers

    def build(self, inputs_shape: Shape) -> None:
        self._check_shape(inputs_shape)
        bins, policy = inputs_shape[2], {"dtype": self.dtype_policy}
        options = {"strides": self.stride, **policy}
        channels, size = self.num_channels, self.kernel_size
        self._strided = [keras.layers.Conv2D(channels, size, name="convolution_0", **options)]
        self._pointwise = []
        for index in range(1, self.num_layers):
            self._strided.append(keras.layers.DepthwiseConv2D(size, name=f"convolution_{index}", **options))
            self._pointwise.append(keras.layers.Dense(channels, name=f"pointwise_{index}", **policy))
        for index, layer in enumerate(self._strided):
            layer.build((None, None, None, 1 if index == 0 else channels))
        for layer in self._pointwise:
            layer.build((None, None, None, channels))
        for _ in range(self.num_layers):
            bins = self._shortened(bins)
        self._projection = keras.layers.Dense(self.hidden_dim, name="projection", **policy)
        self._projection.build((None, None, channels * bins))

    def _check_shape(self, shape):
        if len(shape) != 3 or shape[2] is None:
            raise AudioError(f"{self.name} takes spectrograms of shape (B, T, M). Received shape: {tuple(shape)}")

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check_shape(inputs.shape)
        real = ops.ones_like(inputs[:, :, 0], dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        lengths, mask = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True), real
        x, half = ops.expand_dims(hide_padding(inputs, real), -1), self.kernel_size // 2
        for index, convolution in enumerate(self._strided):
            x = convolution(ops.pad(x, ((0, 0), (half, half), (half, half), (0, 0))))
            lengths = self._shortened(lengths)
            mask = ops.less(ops.expand_dims(ops.arange(ops.shape(x)[1], dtype="int32"), 0), lengths)
            x = _hide(x, mask)
            if index:
                x = _hide(self._pointwise[index - 1](x), mask)
            x = ops.relu(x)
        # Each channel has its bins together, as in the published kernel.
        x = ops.transpose(x, (0, 1, 3, 2))
        return self._projection(ops.reshape(x, (-1, ops.shape(x)[1], x.shape[2] * x.shape[3]))), mask

    def _shortened(self, length):
        """The number of frames, or bins, after one convolution."""
        return num_frames(length + 2 * (self.kernel_size // 2), (self.kernel_size,), (self.stride,))

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        self._check_shape(inputs.shape)
        frames = inputs.shape[1]
        for _ in range(self.num_layers if frames is not None else 0):
            frames = self._shortened(frames)
        shape = (inputs.shape[0], frames, self.hidden_dim)
        return keras.KerasTensor(shape, self.compute_dtype), keras.KerasTensor(shape[:2], "bool")

    def get_config(self) -> Config:
        names = ("hidden_dim", "num_channels", "num_layers", "kernel_size", "stride")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _hide(x, mask):
    """Sets padded frames of `(B, T, F, C)` to 0."""
    return ops.where(ops.expand_dims(ops.expand_dims(mask, -1), -1), x, ops.zeros_like(x))
