"""Convolutional position embedding."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, DType, Outputs, Shape, Tensor

_PADDINGS = ("same", "causal")


@serializable
class ConvolutionalPosition(CachedLayer):
    """Convolutional position embedding: `x + activation(conv(x))`, with a wide convolution over groups of channels.

    Each group of channels is a convolution of its own, because TensorFlow has no gradient of grouped convolutions on CPUs.

    Args:
        kernel_size: int >= 1. Default 128. Frame `t` sees `kernel_size // 2` frames before it.
        num_groups: int that divides the width. Default 16.
        activation: Default "gelu".
        padding: "same", or "causal" for frames that see no later ones, which streaming needs. Default "same".

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real. Padding is set to 0 before.
        cache: dict as `init_cache` returns: the frames before the first. None for zeros.

    Returns:
        `(B, T, D)`; with a cache, `(that, next_cache)`.

    Raises:
        ValueError: an argument out of its range; groups that do not divide the width; a cache without causal padding.

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
        self,
        kernel_size: int = 128,
        num_groups: int = 16,
        activation: Activation = "gelu",
        padding: str = "same",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("kernel_size", kernel_size), ("num_groups", num_groups)):
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        if padding not in _PADDINGS:
            raise ValueError(f"padding must be one of {_PADDINGS}. Received: {padding!r}")
        self.padding = padding
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

    @property
    def reads_chunks(self) -> bool:
        """Whether frames can be read chunk by chunk, with a cache."""
        return self.padding == "causal"

    def init_cache(self, batch_size: int, dtype: DType = None) -> Cache:
        """Returns the frames before the first one: dict of "recent_frames", zeros `(B, kernel_size - 1, D)`."""
        self._check_causal()
        shape = (batch_size, self.kernel_size - 1, self.num_groups * self._width)
        return {"recent_frames": ops.zeros(shape, dtype or self.compute_dtype)} if self.kernel_size > 1 else {}

    def _check_causal(self):
        if not self.reads_chunks:
            raise ValueError(f"{self.name} sees later frames: only one with padding='causal' has a cache.")

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, cache: Cache | None = None) -> Outputs:
        inputs = hide_padding(inputs, padding_mask)
        joined = self._with_context(inputs, cache)
        starts = range(0, self.num_groups * self._width, self._width)
        parts = [
            convolution(joined[:, :, start : start + self._width])
            for convolution, start in zip(self._convolutions, starts, strict=True)
        ]
        output = inputs + self.activation(ops.concatenate(parts, axis=-1))
        if cache is None:
            return output
        length = ops.shape(inputs)[1]
        return output, {name: ops.cast(joined[:, length:], tensor.dtype) for name, tensor in cache.items()}

    def _with_context(self, inputs, cache):
        """Returns the frames with those that the kernel sees before and after them."""
        if cache is not None:
            self._check_causal()
            return ops.concatenate([*(ops.cast(x, inputs.dtype) for x in cache.values()), inputs], axis=1)
        # Keras's "same" pads an even kernel on the other side.
        after = 0 if self.reads_chunks else (self.kernel_size - 1) // 2
        return ops.pad(inputs, ((0, 0), (self.kernel_size - 1 - after, after), (0, 0)))

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "num_groups": self.num_groups,
            "activation": keras.activations.serialize(self.activation),
            "padding": self.padding,
        }
