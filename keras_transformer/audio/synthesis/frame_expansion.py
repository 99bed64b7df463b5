"""From tokens with durations to frames."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.row_gather import take_of_row
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

# Frames of one token: more than any speech has, and so few that all samples of a text can be counted in 32 bits.
_MOST_FRAMES = 4096


@serializable
class FrameCounts(keras.layers.Layer):
    """Number of frames of each token: `ceil(exp(log_duration) / speaking_rate)`, at most 4,096.

    Call arguments:
        inputs: float `(B, T)`: log durations.
        speaking_rate: float `(B,)`, > 0. Twice the rate is half the duration.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real. Padding has no frames.

    Returns:
        int32 `(B, T)`. It has no gradient.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> FrameCounts()(np.log([[1.0, 3.0]]), np.array([2.0])).numpy().tolist()
    [[1, 2]]

    Reference: Kim et al., VITS, arXiv 2106.06103, section 2.2.2. A text without tokens has no frames, where the published
    code gives it one.
    """

    def call(self, inputs: Tensor, speaking_rate: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        durations = ops.exp(inputs) / ops.expand_dims(speaking_rate, 1)
        counts = ops.cast(ops.ceil(ops.clip(durations, 0.0, _MOST_FRAMES)), "int32")
        return counts if padding_mask is None else counts * ops.cast(padding_mask, "int32")

    def compute_output_spec(self, inputs: Tensor, *args: object, **kwargs: object) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape, "int32")


@serializable
class FrameExpansion(keras.layers.Layer):
    """Latent frames of tokens: each token is repeated for its number of frames, and noise is added to its mean.

    A frame is `mean + noise_scale · noise · exp(log_deviation)`, with the mean and the deviation of its token. There are as
    many frames as frames of noise: those that no token has are padding, and tokens beyond them are cut off.

    Args:
        noise_scale: float >= 0. Default 0.667.

    Call arguments:
        inputs: float `(B, T, 2 C)`: means and log deviations of the tokens.
        counts: int32 `(B, T)`: numbers of frames, as of `FrameCounts`.
        noise: float `(B, F, C)`, standard normal.

    Returns:
        Pair of the frames, `(B, F, C)`, 0 at padding, and their padding mask, boolean `(B, F)`.

    Raises:
        ValueError: a negative `noise_scale`.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tokens, noise = np.array([[[1.0, 0.0], [2.0, 0.0]]]), np.zeros((1, 4, 1))
    >>> frames, mask = FrameExpansion()(tokens, np.array([[1, 2]]), noise)
    >>> frames[0, :, 0].numpy().tolist(), mask.numpy().tolist()
    ([1.0, 2.0, 2.0, 0.0], [[True, True, True, False]])

    Reference: Kim et al., VITS, arXiv 2106.06103, section 2.1 and figure 1b.
    """

    def __init__(self, noise_scale: float = 0.667, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if noise_scale < 0:
            raise ValueError(f"noise_scale must not be negative. Received: {noise_scale}")
        self.noise_scale = noise_scale

    def call(self, inputs: Tensor, counts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        ends = ops.cumsum(ops.cast(counts, "int32"), axis=1)
        frames = ops.reshape(ops.arange(ops.shape(noise)[1], dtype="int32"), (1, -1))
        mask = ops.less(frames, ends[:, -1:])
        means, deviations = ops.split(self._of_frames(inputs, ends, frames), 2, axis=-1)
        latents = means + self.noise_scale * noise * ops.exp(deviations)
        return ops.where(ops.expand_dims(mask, -1), latents, ops.zeros_like(latents)), mask

    def _of_frames(self, inputs, ends, frames):
        """Returns the vector of the token of each frame, `(B, F, 2 C)`; of the last token after the end."""
        passed = ops.cast(ops.expand_dims(ends, 1) <= ops.expand_dims(frames, 2), "int32")
        return take_of_row(inputs, ops.minimum(ops.sum(passed, axis=2), ops.shape(inputs)[1] - 1))

    def compute_output_spec(self, inputs: Tensor, counts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        shape = tuple(noise.shape)
        return keras.KerasTensor(shape, self.compute_dtype), keras.KerasTensor(shape[:2], "bool")

    def compute_output_shape(self, inputs_shape: Shape, counts_shape: Shape, noise_shape: Shape) -> tuple[Shape, Shape]:
        return tuple(noise_shape), tuple(noise_shape[:2])

    def get_config(self) -> Config:
        return {**super().get_config(), "noise_scale": self.noise_scale}
