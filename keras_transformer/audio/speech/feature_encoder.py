"""The convolutional feature encoder of wav2vec 2.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.audio.speech.frames import FrameMask, check_convolutions, num_frames, receptive_field
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.instance_norm import InstanceNormalization
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor

_NORMS = ("group", "layer")
# Frames of the longest probe of an export.
_PROBED_FRAMES = 24


@serializable
class FeatureEncoder(keras.layers.Layer):
    """Feature encoder of wav2vec 2.0, from samples to frames: `x_i = activation(norm_i(conv_i(x_{i-1})))`.

    The convolutions have no padding: with the default sizes a frame sees 400 samples, and the next one begins 320 later, so
    that 16 kHz give 49 frames a second. Recordings that are too short for one frame are padded with silence.

    Args:
        hidden_dims: tuple of ints. Channels of each convolution. Default: 7 times 512.
        kernel_sizes, strides: tuples of ints, one of each for a convolution. Default (10, 3, 3, 3, 3, 2, 2) and
            (5, 2, 2, 2, 2, 2, 2).
        norm: "group": the output of the first convolution is normalized over time, per channel, as in the base model;
            "layer": that of every convolution is normalized per frame, as in XLS-R. Default "group".
        activation: of every convolution. Default "gelu".
        use_bias: bool. Whether the convolutions have biases. Default False.

    Call arguments:
        samples: float `(B, samples)`.
        padding_mask: boolean `(B, samples)`, True = a real sample; padding is on the right. None for all real. Only "group"
            reads it.

    Returns:
        `(B, frames, C)`. Frames that see padding are no part of the recording: see `FrameMask`.

    Raises:
        ValueError: an unknown norm, or invalid sizes.
        AudioError: samples of another rank.

    Masking: statistics over time are those of the real frames, so that a row of a batch gives what it gives alone. The
    published code counts padding too.
    Export: all three formats, with a fixed or dynamic number of samples.

    Example:

    >>> import numpy as np
    >>> encoder = FeatureEncoder(hidden_dims=(6, 8), kernel_sizes=(5, 3), strides=(4, 2))
    >>> tuple(encoder(np.zeros((1, 100), "float32")).shape)
    (1, 11, 8)

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 2 and 4.2; Babu et al., XLS-R, arXiv 2111.09296.
    """

    def __init__(
        self,
        hidden_dims: Sequence[int] = (512,) * 7,
        kernel_sizes: Sequence[int] = (10, 3, 3, 3, 3, 2, 2),
        strides: Sequence[int] = (5, 2, 2, 2, 2, 2, 2),
        norm: str = "group",
        activation: Activation = "gelu",
        use_bias: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_convolutions(kernel_sizes, strides)
        if len(hidden_dims) != len(strides) or not all(map(is_count, hidden_dims)):
            raise ValueError(
                f"hidden_dims must be {len(strides)} ints of at least 1, one for a convolution. "
                f"Received: {tuple(hidden_dims)}"
            )
        if norm not in _NORMS:
            raise ValueError(f"norm must be one of {_NORMS}. Received: {norm!r}")
        self.hidden_dims = tuple(hidden_dims)
        self.kernel_sizes = tuple(kernel_sizes)
        self.strides = tuple(strides)
        self.norm = norm
        self.activation = get_activation(activation)
        self.use_bias = use_bias
        self._convolutions = [
            keras.layers.Conv1D(
                width, kernel_size, stride, use_bias=use_bias, dtype=self.dtype_policy, name=f"convolution_{index}"
            )
            for index, (width, kernel_size, stride) in enumerate(zip(hidden_dims, kernel_sizes, strides, strict=True))
        ]
        self._norms = [self._make_norm(index) for index in range(len(hidden_dims) if norm == "layer" else 1)]
        self._first_mask = FrameMask(self.kernel_sizes[:1], self.strides[:1], name="first_mask")

    def _make_norm(self, index):
        cls = InstanceNormalization if self.norm == "group" else LayerNormalization
        return cls(epsilon=1e-5, dtype=self.dtype_policy, name=f"norm_{index}")

    @property
    def receptive_field(self) -> int:
        """int: the number of samples that one frame sees."""
        return receptive_field(self.kernel_sizes, self.strides)

    @property
    def probe_length(self) -> int:
        """int: the samples of a probe that reaches several frames; read by `export`."""
        hop = 1
        for stride in self.strides:
            hop *= stride
        return self.receptive_field + _PROBED_FRAMES * hop

    def build(self, samples_shape: Shape) -> None:
        self._check_shape(samples_shape)
        width = 1
        for index, convolution in enumerate(self._convolutions):
            convolution.build((None, None, width))
            width = self.hidden_dims[index]
            if index < len(self._norms):
                self._norms[index].build((None, None, width))

    def _check_shape(self, shape):
        if len(shape) != 2:
            raise AudioError(f"{self.name} takes samples of shape (B, samples). Received shape: {tuple(shape)}")

    def call(self, samples: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        self._check_shape(samples.shape)
        x = ops.expand_dims(self._padded(samples), -1)
        for index, convolution in enumerate(self._convolutions):
            x = convolution(x)
            if index < len(self._norms):
                x = self._norms[index](x, **self._masks(padding_mask))
            x = self.activation(x)
        return x

    def _masks(self, padding_mask):
        if self.norm == "layer" or padding_mask is None:
            return {}
        return {"padding_mask": self._first_mask(self._padded(padding_mask))}

    def _padded(self, samples):
        """Pads recordings to the length of one frame."""
        least = self.receptive_field
        if samples.shape[1] is not None:
            return ops.pad(samples, ((0, 0), (0, max(0, least - samples.shape[1]))))
        length = ops.maximum(ops.shape(samples)[1], least)
        return ops.pad(samples, ((0, 0), (0, least)))[:, :length]

    def compute_output_shape(self, samples_shape: Shape, *args: object, **kwargs: object) -> Shape:
        self._check_shape(samples_shape)
        samples = samples_shape[1]
        if samples is not None:
            samples = num_frames(max(samples, self.receptive_field), self.kernel_sizes, self.strides)
        return (samples_shape[0], samples, self.hidden_dims[-1])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dims": self.hidden_dims,
            "kernel_sizes": self.kernel_sizes,
            "strides": self.strides,
            "norm": self.norm,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
        }
