"""Numbers and masks of the frames that convolutions make of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Shape, Tensor


def check_convolutions(kernel_sizes: Sequence[int], strides: Sequence[int]) -> None:
    """Raises an error for convolutions of different numbers of kernels and strides, or of none.

    Raises:
        ValueError: see above, or a size that is not an int of at least 1.
    """
    if not len(kernel_sizes) == len(strides) >= 1 or not all(map(is_count, (*kernel_sizes, *strides))):
        raise ValueError(
            "kernel_sizes and strides must be ints of at least 1, one of each for a convolution. Received: "
            f"{tuple(kernel_sizes)}, {tuple(strides)}"
        )


def receptive_field(kernel_sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Returns the number of samples that one frame is computed from.

    Example:

    >>> receptive_field((10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2))
    400
    """
    field = 1
    for kernel_size, stride in zip(reversed(kernel_sizes), reversed(strides), strict=True):
        field = (field - 1) * stride + kernel_size
    return field


def num_frames(num_samples: Any, kernel_sizes: Sequence[int], strides: Sequence[int]) -> Any:
    """Returns the number of frames of convolutions without padding; 0 for fewer samples than one frame needs.

    Args:
        num_samples: int, or integer array or tensor.
        kernel_sizes, strides: tuples of ints, one of each for a convolution.

    Returns:
        The same type.

    Example:

    >>> num_frames(16_000, (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2))
    49
    """
    for kernel_size, stride in zip(kernel_sizes, strides, strict=True):
        steps = num_samples - kernel_size + stride
        # Runtimes round the quotient of a negative number differently.
        if isinstance(steps, (int, np.ndarray)):
            num_samples = steps.clip(0) // stride if isinstance(steps, np.ndarray) else max(steps, 0) // stride
        else:
            num_samples = ops.maximum(steps, 0) // stride
    return num_samples


@serializable
class FrameMask(keras.layers.Layer):
    """Padding mask of the frames of convolutions, from that of the samples.

    A frame is real if it is computed from real samples only. Recordings must be padded on the right: the number of True
    values of a row is its length.

    Args:
        kernel_sizes, strides: tuples of ints, one of each for a convolution without padding.

    Call arguments:
        padding_mask: boolean `(B, samples)`, True = a real sample.

    Returns:
        Boolean `(B, frames)`. Fewer samples than one frame needs give one frame, which is padding.

    Raises:
        ValueError: invalid kernel sizes or strides.
        AudioError: a mask of another rank.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    >>> FrameMask(kernel_sizes=(3,), strides=(1,))(mask).numpy().tolist()
    [[True, True, True, True], [True, False, False, False]]
    """

    def __init__(self, kernel_sizes: Sequence[int], strides: Sequence[int], **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        check_convolutions(kernel_sizes, strides)
        self.kernel_sizes = tuple(kernel_sizes)
        self.strides = tuple(strides)

    def call(self, padding_mask: Tensor) -> Tensor:
        if len(padding_mask.shape) != 2:
            raise AudioError(f"{self.name} takes a mask (B, samples). Received shape: {tuple(padding_mask.shape)}")
        lengths = ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)
        real = num_frames(lengths, self.kernel_sizes, self.strides)
        frames = ops.expand_dims(ops.arange(self._num_frames(ops.shape(padding_mask)[1]), dtype="int32"), 0)
        return ops.less(frames, real)

    def _num_frames(self, samples):
        least = receptive_field(self.kernel_sizes, self.strides)
        samples = max(samples, least) if isinstance(samples, int) else ops.maximum(samples, least)
        return num_frames(samples, self.kernel_sizes, self.strides)

    def compute_output_spec(self, padding_mask: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(padding_mask.shape), dtype="bool")

    def compute_output_shape(self, mask_shape: Shape) -> Shape:
        samples = mask_shape[1]
        return (mask_shape[0], None if samples is None else self._num_frames(samples))

    def get_config(self) -> Config:
        return {**super().get_config(), "kernel_sizes": self.kernel_sizes, "strides": self.strides}
