"""The generator of HiFi-GAN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts, check_odd
from keras_transformer.audio.synthesis.speaker import add_speaker, speaker_projection
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

_ENDS_KERNEL = 7


@serializable
class HiFiGAN(keras.layers.Layer):
    """Generator of HiFi-GAN: frames to samples, by transposed convolutions and residual blocks of several kernel sizes.

    Args:
        hidden_dim: int >= 1. Channels before the first transposed convolution; each divides them by 2. Default 512.
        strides: tuple of ints >= 1, of the transposed convolutions. A frame becomes as many samples as their product.
            Default (8, 8, 2, 2).
        kernel_sizes: tuple of ints, of the transposed convolutions: at least the stride, and more by an even number.
            Default (16, 16, 4, 4).
        block_kernel_sizes: tuple of odd ints. After each transposed convolution, one block for each. Default (3, 7, 11).
        block_dilation_rates: tuple of tuples of ints >= 1, the dilations in each of these blocks. Default (1, 3, 5) for
            each.
        negative_slope: float. Of the leaky ReLUs, except the last one, with 0.01. Default 0.1.

    Call arguments:
        inputs: float `(B, F, C)`.
        padding_mask: boolean `(B, F)`, True = a real frame; None for all real. Padding is set to 0 before each convolution,
            so that a row of a batch gives what it gives alone.
        speaker: float `(B, S)`: the vector of the speaker; None for none.

    Returns:
        Samples in [-1, 1], `(B, F · product of strides)`; 0 at padding.

    Raises:
        ValueError: an argument out of its range; channels that cannot be divided as often as there are strides.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> decoder = HiFiGAN(8, (4, 2), (8, 4), (3,), ((1, 2),))
    >>> tuple(decoder(np.zeros((1, 5, 6), "float32")).shape)
    (1, 40)

    Reference: Kong et al., HiFi-GAN, arXiv 2010.05646, section 2.2 and appendix A, with the projection of speakers of VITS,
    arXiv 2106.06103. The published code computes padding as frames, which changes the last samples of shorter rows.
    """

    def __init__(
        self,
        hidden_dim: int = 512,
        strides: Sequence[int] = (8, 8, 2, 2),
        kernel_sizes: Sequence[int] = (16, 16, 4, 4),
        block_kernel_sizes: Sequence[int] = (3, 7, 11),
        block_dilation_rates: Sequence[Sequence[int]] | None = None,
        negative_slope: float = 0.1,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.strides = tuple(strides)
        self.kernel_sizes = tuple(kernel_sizes)
        self.block_kernel_sizes = tuple(block_kernel_sizes)
        rates = ((1, 3, 5),) * len(self.block_kernel_sizes) if block_dilation_rates is None else block_dilation_rates
        self.block_dilation_rates = tuple(map(tuple, rates))
        self.negative_slope = negative_slope
        self._check()

    def _check(self):
        check_counts(hidden_dim=self.hidden_dim)
        pairs = (("kernel_sizes", "strides"), ("block_dilation_rates", "block_kernel_sizes"))
        for name, like in pairs:
            one, other = getattr(self, like), getattr(self, name)
            if not len(one) == len(other) >= 1:
                raise ValueError(f"{name} must have one item for each of {one}. Received: {other}")
        for stride, size in zip(self.strides, self.kernel_sizes, strict=True):
            check_counts(strides=stride, kernel_sizes=size)
            if size < stride or (size - stride) % 2:
                raise ValueError(
                    f"A kernel size must be its stride, or more by an even number. Received: {size} for {stride}"
                )
        for size, rates in zip(self.block_kernel_sizes, self.block_dilation_rates, strict=True):
            check_odd(block_kernel_sizes=size)
            for rate in rates or (None,):
                check_counts(block_dilation_rates=rate)
        if self.hidden_dim < 2 ** len(self.strides):
            raise ValueError(f"hidden_dim must be at least {2 ** len(self.strides)}. Received: {self.hidden_dim}")

    @property
    def samples_per_frame(self) -> int:
        """int: the product of the strides."""
        return math.prod(self.strides)

    def build(self, inputs_shape: Shape, speaker_shape: Shape | None = None) -> None:
        policy, leading = {"dtype": self.dtype_policy}, tuple(inputs_shape[:1])

        def convolution(width, channels, kernel_size, name, **options):
            layer = keras.layers.Conv1D(channels, kernel_size, padding="same", name=name, **options, **policy)
            layer.build((*leading, None, width))
            return layer

        self._first = convolution(inputs_shape[-1], self.hidden_dim, _ENDS_KERNEL, "first_convolution")
        self._speaker = speaker_projection(self.hidden_dim, speaker_shape, self.dtype_policy)
        self._upsampling, self._blocks, width = [], [], self.hidden_dim
        for index, (stride, kernel_size) in enumerate(zip(self.strides, self.kernel_sizes, strict=True)):
            before, width = width, self.hidden_dim // 2 ** (index + 1)
            layer = keras.layers.Conv1DTranspose(
                width, kernel_size, strides=stride, padding="valid", name=f"upsampling_{index}", **policy
            )
            layer.build((*leading, None, before))
            self._upsampling.append(layer)
            for number, (size, rates) in enumerate(
                zip(self.block_kernel_sizes, self.block_dilation_rates, strict=True)
            ):
                name = f"block_{index}_{number}"
                self._blocks.append(
                    [
                        (
                            convolution(width, width, size, f"{name}_dilated_{step}", dilation_rate=rate),
                            convolution(width, width, size, f"{name}_plain_{step}"),
                        )
                        for step, rate in enumerate(rates)
                    ]
                )
        self._last = convolution(width, 1, _ENDS_KERNEL, "last_convolution", use_bias=False)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, speaker: Tensor | None = None) -> Tensor:
        mask, per_level = padding_mask, len(self.block_kernel_sizes)
        x = add_speaker(self._first(hide_padding(inputs, mask)), self._speaker, speaker)
        for index, (stride, upsampling) in enumerate(zip(self.strides, self._upsampling, strict=True)):
            length = ops.shape(x)[1] * stride
            x = upsampling(hide_padding(ops.leaky_relu(x, self.negative_slope), mask))
            margin = (self.kernel_sizes[index] - stride) // 2
            x = x[:, margin : margin + length]
            mask = None if mask is None else ops.repeat(mask, stride, axis=1)
            blocks = self._blocks[index * per_level : (index + 1) * per_level]
            x = sum(self._run(block, x, mask) for block in blocks) / per_level
        x = self._last(hide_padding(ops.leaky_relu(x, 0.01), mask))
        return ops.tanh(hide_padding(x, mask)[..., 0])

    def _run(self, block, x, mask):
        """Returns the output of a residual block."""
        for dilated, plain in block:
            hidden = dilated(hide_padding(ops.leaky_relu(x, self.negative_slope), mask))
            x = x + plain(hide_padding(ops.leaky_relu(hidden, self.negative_slope), mask))
        return x

    def compute_output_spec(self, inputs: Tensor, **_: object) -> keras.KerasTensor:
        batch, frames = inputs.shape[:2]
        length = None if frames is None else frames * self.samples_per_frame
        return keras.KerasTensor((batch, length), self.compute_dtype)

    def get_config(self) -> Config:
        names = (
            "hidden_dim",
            "strides",
            "kernel_sizes",
            "block_kernel_sizes",
            "block_dilation_rates",
            "negative_slope",
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
