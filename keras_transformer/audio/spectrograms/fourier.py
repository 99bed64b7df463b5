"""The Fourier transform of windowed frames as a convolution."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor

WINDOWS = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "rectangular": (1.0, 0.0)}


def fourier_kernel(
    frame_length: int, hop_length: int, fft_length: int, window: tuple[float, float], period: int | None = None
) -> np.ndarray:
    """Returns the kernel of a convolution over blocks of `hop_length` samples that computes the DFT of windowed frames.

    Args:
        frame_length, hop_length, fft_length: ints.
        window: pair `(a, b)` of the window `a - b cos(2 pi n / period)`.
        period: int. None for `frame_length`; one less for a symmetric window.

    Returns:
        float32 `(blocks per frame, hop_length, 2 (fft_length // 2 + 1))`: the real parts, then the imaginary ones.
    """
    times = np.arange(frame_length)
    shape = window[0] - window[1] * np.cos(2 * np.pi * times / (period or frame_length))
    # Reducing phases modulo one revolution before scaling to angles keeps these exact.
    phases = times[:, None] * np.arange(fft_length // 2 + 1) % fft_length / fft_length
    waves = np.concatenate([np.cos(2 * np.pi * phases), -np.sin(2 * np.pi * phases)], axis=1) * shape[:, None]
    blocks = -(-frame_length // hop_length)
    kernel = np.zeros((blocks * hop_length, waves.shape[1]))
    kernel[:frame_length] = waves
    return kernel.reshape(blocks, hop_length, -1).astype("float32")


def power_spectrum(samples: Tensor, frames: int | Tensor, kernel: np.ndarray) -> Tensor:
    """Returns the power `|DFT(window · frame)|²` of frames, the first of which begins with the first sample.

    Args:
        samples: float32 `(B, samples)`, as many as the frames have, or more.
        frames: int or scalar tensor: their number.
        kernel: as `fourier_kernel` returns it.

    Returns:
        float32 `(B, frames, fft_length // 2 + 1)`.
    """
    blocks_per_frame, hop_length, _ = kernel.shape
    # The last block may exceed the samples; the kernel is zero there.
    samples = ops.pad(samples, ((0, 0), (0, hop_length)))
    blocks = frames + blocks_per_frame - 1
    samples = ops.reshape(samples[:, : blocks * hop_length], (-1, blocks, hop_length))
    parts = ops.conv(samples, ops.convert_to_tensor(kernel), strides=1, padding="valid", data_format="channels_last")
    real, imaginary = ops.split(parts, 2, axis=-1)
    return real * real + imaginary * imaginary
