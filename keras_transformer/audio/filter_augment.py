"""Microphones and rooms that no recording was made with."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.audio.random_change import RandomChange, check_range
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class FilterAugment(RandomChange):
    """Log spectrograms colored by a random filter, the same for all frames; in training alone.

    Points stand at equal distances over the bins, each with a gain drawn anew for each spectrogram; between them the gain
    is linear, and it is added: a factor to the power.

    Args:
        gain: float >= 0. The most that is added or taken away, in the unit of the spectrogram: 1 is 10 dB where that is
            log10.
        num_points: int >= 2.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`: logarithms, as `LogMel` gives.

    Returns:
        The same shape; what came in, where it does not train.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> change = FilterAugment(1.0, seed=0)(np.zeros((1, 5, 8), "float32"), training=True).numpy()
    >>> bool((change[0, 0] == change[0, 4]).all()), bool(abs(change).max() <= 1)
    (True, True)

    Reference: Nam et al., FilterAugment, arXiv 2110.03282, its linear type; here with points at equal distances in bins,
    where the paper draws how many there are, and where.
    """

    def __init__(self, gain: float = 0.5, num_points: int = 5, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed, **kwargs)
        check_range(float("inf"), gain=gain)
        if not is_count(num_points) or num_points < 2:
            raise ValueError(f"num_points must be an int of at least 2. Received: {num_points!r}")
        self.gain = gain
        self.num_points = num_points

    def change(self, spectrogram: Tensor):
        batch, bins = ops.shape(spectrogram)[0], spectrogram.shape[2]
        gains = keras.random.uniform((batch, self.num_points), -self.gain, self.gain, seed=self.seed_generator)
        # Each bin's share of the points next to it.
        distances = np.linspace(0, self.num_points - 1, bins) - np.arange(self.num_points)[:, None]
        shares = np.maximum(0, 1 - np.abs(distances)).astype("float32")
        curve = ops.expand_dims(ops.matmul(gains, shares), 1)
        return spectrogram + ops.cast(curve, spectrogram.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "gain": self.gain, "num_points": self.num_points}
