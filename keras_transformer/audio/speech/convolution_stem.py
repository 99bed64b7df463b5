"""The convolutions of Moonshine, from samples to frames."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.audio.speech.frames import num_frames, receptive_field
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

_KERNEL_SIZES, _STRIDES = (127, 7, 3), (64, 3, 2)
# Frames of the longest probe of an export.
_PROBED_FRAMES = 24


@serializable
class ConvolutionStem(keras.layers.Layer):
    """Convolutions of Moonshine, from samples to frames: `GELU(conv_3(GELU(conv_2(norm(tanh(conv_1(x)))))))`.

    The kernels have 127, 7 and 3 samples, the strides are 64, 3 and 2: a frame sees 895 samples, and the next one begins 384
    later, so that 16 kHz give 41 frames a second. Recordings that are too short for one frame are padded with silence. The
    norm is over time and channels of the whole recording.

    Args:
        hidden_dim: int >= 1. Channels of the frames D; the second convolution has 2 D.

    Call arguments:
        samples: float `(B, samples)`.

    Returns:
        `(B, frames, D)`.

    Raises:
        AudioError: samples of another rank.

    Masking: none. Silence behind a recording changes its norm: recordings of a batch have one length.
    Export: all three formats, with a fixed or dynamic number of samples.

    Example:

    >>> import numpy as np
    >>> tuple(ConvolutionStem(8)(np.zeros((1, 16_000), "float32")).shape)
    (1, 40, 8)

    Reference: Jeffries et al., Moonshine, arXiv 2410.15608, section 3.2.
    """

    def __init__(self, hidden_dim: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self._convolutions = [
            keras.layers.Conv1D(
                width,
                kernel_size,
                strides,
                activation=activation,
                use_bias=number > 1,
                dtype=self.dtype_policy,
                name=f"convolution_{number}",
            )
            for number, width, kernel_size, strides, activation in zip(
                (1, 2, 3),
                (hidden_dim, 2 * hidden_dim, hidden_dim),
                _KERNEL_SIZES,
                _STRIDES,
                ("tanh", "gelu", "gelu"),
                strict=True,
            )
        ]
        self._norm = keras.layers.GroupNormalization(1, epsilon=1e-5, dtype=self.dtype_policy, name="norm")

    @property
    def probe_length(self) -> int:
        """int: the samples of a probe that reaches several frames; read by `export`."""
        hop = _STRIDES[0] * _STRIDES[1] * _STRIDES[2]
        return receptive_field(_KERNEL_SIZES, _STRIDES) + _PROBED_FRAMES * hop

    def build(self, samples_shape: Shape) -> None:
        self._check_shape(samples_shape)
        width = 1
        for convolution in self._convolutions:
            convolution.build((None, None, width))
            width = convolution.filters
        self._norm.build((None, None, self.hidden_dim))

    def _check_shape(self, shape):
        if len(shape) != 2:
            raise AudioError(f"{self.name} takes samples of shape (B, samples). Received shape: {tuple(shape)}")

    def call(self, samples: Tensor) -> Tensor:
        self._check_shape(samples.shape)
        first, *others = self._convolutions
        x = self._norm(first(ops.expand_dims(_padded(samples), -1)))
        for convolution in others:
            x = convolution(x)
        return x

    def compute_output_shape(self, samples_shape: Shape) -> Shape:
        self._check_shape(samples_shape)
        samples = samples_shape[1]
        if samples is not None:
            least = receptive_field(_KERNEL_SIZES, _STRIDES)
            samples = num_frames(max(samples, least), _KERNEL_SIZES, _STRIDES)
        return (samples_shape[0], samples, self.hidden_dim)

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


def _padded(samples):
    """Pads recordings to the length of one frame."""
    least = receptive_field(_KERNEL_SIZES, _STRIDES)
    if samples.shape[1] is not None:
        return ops.pad(samples, ((0, 0), (0, max(0, least - samples.shape[1]))))
    length = ops.maximum(ops.shape(samples)[1], least)
    return ops.pad(samples, ((0, 0), (0, least)))[:, :length]
