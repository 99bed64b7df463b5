"""Adapters of encoders of speech."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.speech.frames import num_frames
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class SpeechAdapter(keras.layers.Layer):
    """Convolutions that shorten the frames of an encoder of speech: `x_i = a ⊙ sigmoid(b)`, `(a, b) = conv_i(x_{i-1})`.

    Args:
        num_layers: int >= 1. Default 3.
        kernel_size: int >= 1. Default 3. Each convolution has one frame of padding on both sides.
        stride: int >= 1. Default 2.
        hidden_dim: int: width of a projection with a layer norm, before the convolutions; None for neither.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame, padded on the right; None for all real.

    Returns:
        Pair of the frames `(B, T', C)` and their padding mask, boolean `(B, T')`.

    Raises:
        ValueError: an argument out of its range.

    Masking: padding is set to 0 before every convolution, so that a row of a batch gives what it gives alone.
    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> frames, mask = SpeechAdapter(num_layers=1)(np.zeros((1, 7, 4), "float32"))
    >>> tuple(frames.shape), tuple(mask.shape)
    ((1, 4, 4), (1, 4))

    Reference: transformers' `Wav2Vec2Adapter`, which neither sets padding to 0 nor returns a mask; Li et al.,
    arXiv 2010.12829, section 3.1.
    """

    def __init__(
        self,
        num_layers: int = 3,
        kernel_size: int = 3,
        stride: int = 2,
        hidden_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("num_layers", num_layers), ("kernel_size", kernel_size), ("stride", stride)):
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        self.num_layers = num_layers
        self.kernel_size = kernel_size
        self.stride = stride
        self.hidden_dim = hidden_dim

    def build(self, inputs_shape: Shape) -> None:
        policy, width = self.dtype_policy, self.hidden_dim or inputs_shape[-1]
        if self.hidden_dim is not None:
            self._projection = keras.layers.Dense(width, dtype=policy, name="projection")
            self._norm = LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
            self._projection.build(inputs_shape)
            self._norm.build((*inputs_shape[:-1], width))
        self._convolutions = []
        for index in range(self.num_layers):
            layer = keras.layers.Conv1D(
                2 * width, self.kernel_size, self.stride, dtype=policy, name=f"convolution_{index}"
            )
            layer.build((*inputs_shape[:-1], width))
            self._convolutions.append(layer)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x = inputs if self.hidden_dim is None else self._norm(self._projection(inputs))
        mask = ops.ones_like(x[:, :, 0], dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        for convolution in self._convolutions:
            x = convolution(ops.pad(hide_padding(x, mask), ((0, 0), (1, 1), (0, 0))))
            values, gates = ops.split(x, 2, axis=-1)
            x = values * ops.sigmoid(gates)
            lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
            frames = ops.expand_dims(ops.arange(ops.shape(x)[1], dtype="int32"), 0)
            mask = ops.less(frames, self._num_frames(lengths, ops.cast(ops.greater(lengths, 0), "int32")))
        return x, mask

    def _num_frames(self, frames, is_any=1):
        """The frames after one convolution; a row without real frames keeps none."""
        return num_frames(frames + 2, (self.kernel_size,), (self.stride,)) * is_any

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        frames = inputs.shape[1]
        for _ in range(self.num_layers if frames is not None else 0):
            frames = self._num_frames(frames)
        shape = (inputs.shape[0], frames, self.hidden_dim or inputs.shape[-1])
        return keras.KerasTensor(shape, self.compute_dtype), keras.KerasTensor(shape[:2], "bool")

    def get_config(self) -> Config:
        own = {name: getattr(self, name) for name in ("num_layers", "kernel_size", "stride", "hidden_dim")}
        return {**super().get_config(), **own}


@serializable
class BottleneckAdapter(keras.layers.Layer):
    """Bottleneck adapter after a block: `x + relu(norm(x) W_1 + b_1) W_2 + b_2`, trained alone for a new language.

    Args:
        bottleneck_dim: int >= 1. Width of the hidden layer. Default 16.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `bottleneck_dim` below 1.

    Example:

    >>> import numpy as np
    >>> tuple(BottleneckAdapter(2)(np.zeros((1, 3, 8), "float32")).shape)
    (1, 3, 8)

    Reference: Houlsby et al., arXiv 1902.00751, section 2.1; Pratap et al., MMS, arXiv 2305.13516, section 5.3.
    """

    def __init__(self, bottleneck_dim: int = 16, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not is_count(bottleneck_dim):
            raise ValueError(f"bottleneck_dim must be an int of at least 1. Received: {bottleneck_dim!r}")
        self.bottleneck_dim = bottleneck_dim

    def build(self, inputs_shape: Shape) -> None:
        policy = self.dtype_policy
        self._norm = LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
        self._hidden_dense = keras.layers.Dense(self.bottleneck_dim, activation="relu", dtype=policy, name="hidden")
        self._output_dense = keras.layers.Dense(inputs_shape[-1], dtype=policy, name="output")
        self._norm.build(inputs_shape)
        self._hidden_dense.build(inputs_shape)
        self._output_dense.build((*inputs_shape[:-1], self.bottleneck_dim))

    def call(self, inputs: Tensor) -> Tensor:
        return inputs + self._output_dense(self._hidden_dense(self._norm(inputs)))

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "bottleneck_dim": self.bottleneck_dim}
