"""The Fourier transform of windowed frames as a convolution."""

from __future__ import annotations

import numpy as np

WINDOWS = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "rectangular": (1.0, 0.0)}


def fourier_kernel(frame_length: int, hop_length: int, fft_length: int, window: tuple[float, float]) -> np.ndarray:
    """Returns the kernel of a convolution over blocks of `hop_length` samples that computes the DFT of windowed frames.

    Args:
        frame_length, hop_length, fft_length: ints.
        window: pair `(a, b)` of the window `a - b cos(2 pi n / frame_length)`.

    Returns:
        float32 `(blocks per frame, hop_length, 2 (fft_length // 2 + 1))`: the real parts, then the imaginary ones.
    """
    times = np.arange(frame_length)
    shape = window[0] - window[1] * np.cos(2 * np.pi * times / frame_length)
    # Reducing phases modulo one revolution before scaling to angles keeps these exact.
    phases = times[:, None] * np.arange(fft_length // 2 + 1) % fft_length / fft_length
    waves = np.concatenate([np.cos(2 * np.pi * phases), -np.sin(2 * np.pi * phases)], axis=1) * shape[:, None]
    blocks = -(-frame_length // hop_length)
    kernel = np.zeros((blocks * hop_length, waves.shape[1]))
    kernel[:frame_length] = waves
    return kernel.reshape(blocks, hop_length, -1).astype("float32")
