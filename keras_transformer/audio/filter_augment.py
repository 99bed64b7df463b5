"""FilterAugment: random acoustic filters."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.audio.random_augmentation import RandomAugmentation, check_range
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class FilterAugment(RandomAugmentation):
    """FilterAugment: adds a random frequency response to log spectrograms, in training only.

    Equally spaced points over the bins have random gains, drawn for each spectrogram, with linear interpolation between
    them. Gains are added to all frames: they are factors of the power.

    Args:
        gain: float >= 0. Maximum magnitude of a gain, in the unit of the spectrogram: 1 is 10 dB for log10. Default 0.5.
        num_points: int >= 2. Default 5.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`: log spectrograms, as from `LogMel`.

    Returns:
        The same shape; the inputs, unless `training`.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> change = FilterAugment(1.0, seed=0)(np.zeros((1, 5, 8), "float32"), training=True).numpy()
    >>> bool((change[0, 0] == change[0, 4]).all()), bool(abs(change).max() <= 1)
    (True, True)

    Reference: Nam et al., FilterAugment, arXiv 2110.03282, its linear type; here with equally spaced points, where the paper
    draws their number and positions.
    """

    def __init__(
        self, gain: float = 0.5, num_points: int = 5, seed: int | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(seed, **kwargs)
        check_range(float("inf"), gain=gain)
        if not is_count(num_points) or num_points < 2:
            raise ValueError(f"num_points must be an int of at least 2. Received: {num_points!r}")
        self.gain = gain
        self.num_points = num_points

    def augment(self, spectrogram: Tensor) -> Tensor:
        batch, bins = ops.shape(spectrogram)[0], spectrogram.shape[2]
        gains = keras.random.uniform((batch, self.num_points), -self.gain, self.gain, seed=self.seed_generator)
        # Weights of the two points next to each bin.
        distances = np.linspace(0, self.num_points - 1, bins) - np.arange(self.num_points)[:, None]
        shares = np.maximum(0, 1 - np.abs(distances)).astype("float32")
        curve = ops.expand_dims(ops.matmul(gains, shares), 1)
        return spectrogram + ops.cast(curve, spectrogram.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "gain": self.gain, "num_points": self.num_points}
