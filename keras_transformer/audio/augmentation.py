"""Random changes to recordings and spectrograms in training, inside the model."""

from typing import Any

import keras
from keras import ops

from keras_transformer.audio.random_change import RandomChange, check_range
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class RandomSound(RandomChange):
    """Recordings played at another speed, from another moment on, louder or softer, in noise; in training alone.

    Sample t becomes `e^g x(s t - d) + n`, linearly between the samples of x and 0 outside of them. At another speed s a
    voice is higher or lower too. Each recording has its own s, d, g, and level of noise.

    Args:
        speed: float in [0, 1). s lies within this of 1.
        shift: float in [0, 1). d is at most this share of the recording, either way.
        gain: float >= 0. g is at most this, either way.
        noise: float >= 0. The standard deviation of white noise n is at most this share of the recording's largest value.
        seed: int or None.

    Call arguments:
        inputs: float `(B, samples)`.

    Returns:
        `(B, samples)`; what came in, where it does not train.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> sound = np.array([[0.0, 0.5, -0.5, 0.25]], "float32")
    >>> RandomSound(speed=0.1, noise=0.5)(sound, training=False).numpy().tolist()
    [[0.0, 0.5, -0.5, 0.25]]

    Reference: Ko et al., Audio Augmentation for Speech Recognition, Interspeech 2015 (speed).
    """

    def __init__(
        self,
        speed: float = 0.0,
        shift: float = 0.0,
        gain: float = 0.0,
        noise: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, **kwargs)
        check_range(1, speed=speed, shift=shift)
        check_range(float("inf"), gain=gain, noise=noise)
        self.speed = speed
        self.shift = shift
        self.gain = gain
        self.noise = noise

    def change(self, samples: Tensor):
        samples = self._moved(samples) * ops.cast(ops.exp(self._draw(samples, self.gain)), samples.dtype)
        if not self.noise:
            return samples
        level = ops.max(ops.absolute(samples), axis=1, keepdims=True) * ops.absolute(self._draw(samples, self.noise))
        return samples + level * keras.random.normal(ops.shape(samples), dtype=samples.dtype, seed=self.seed_generator)

    def _draw(self, samples, most):
        """A number in [-most, most] for each recording, `(B, 1)`."""
        return keras.random.uniform((ops.shape(samples)[0], 1), -most, most, seed=self.seed_generator)

    def _moved(self, samples):
        length = ops.shape(samples)[1]
        span = ops.cast(length, "float32")
        times = ops.expand_dims(ops.arange(length, dtype="float32"), 0)
        times = times * (1.0 + self._draw(samples, self.speed)) - span * self._draw(samples, self.shift)
        before = ops.floor(times)
        share = times - before
        return (1.0 - share) * _at(samples, before, length) + share * _at(samples, before + 1.0, length)

    def get_config(self) -> Config:
        own = {name: getattr(self, name) for name in ("speed", "shift", "gain", "noise")}
        return {**super().get_config(), **own}


def _at(samples, times, length):
    """The samples at whole moments `(B, samples)`, 0 where there are none."""
    places = ops.cast(times, "int32")
    inside = ops.logical_and(places >= 0, places < length)
    found = ops.take_along_axis(samples, ops.clip(places, 0, length - 1), axis=1)
    return ops.where(inside, found, ops.zeros_like(found))


@serializable
class SpecAugment(RandomChange):
    """Spectrograms with bands of frequencies and stretches of time replaced by their mean; in training alone.

    Each mask is of any width up to its limit, and stands anywhere; each spectrogram has its own.

    Args:
        num_frequency_masks: int >= 0.
        frequency_mask: int >= 1. The widest band, in mel bins.
        num_time_masks: int >= 0.
        time_mask: int >= 1. The longest stretch, in frames.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`.

    Returns:
        The same shape; what came in, where it does not train.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> masked = SpecAugment(num_time_masks=0, frequency_mask=3, seed=0)(np.random.rand(1, 5, 8), training=True)
    >>> tuple(masked.shape)
    (1, 5, 8)

    Reference: Park et al., SpecAugment, arXiv 1904.08779, section 2, without its time warping.
    """

    def __init__(
        self,
        num_frequency_masks: int = 2,
        frequency_mask: int = 8,
        num_time_masks: int = 2,
        time_mask: int = 10,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, **kwargs)
        for name, value in (("num_frequency_masks", num_frequency_masks), ("num_time_masks", num_time_masks)):
            if value != 0 and not is_count(value):
                raise ValueError(f"{name} must be an int of at least 0. Received: {value!r}")
        for name, value in (("frequency_mask", frequency_mask), ("time_mask", time_mask)):
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        self.num_frequency_masks = num_frequency_masks
        self.frequency_mask = frequency_mask
        self.num_time_masks = num_time_masks
        self.time_mask = time_mask

    def change(self, spectrogram: Tensor):
        batch, frames, bins = ops.shape(spectrogram)
        bands = self._hit(batch, bins, self.num_frequency_masks, self.frequency_mask)
        stretches = self._hit(batch, frames, self.num_time_masks, self.time_mask)
        hit = ops.logical_or(ops.expand_dims(bands, 1), ops.expand_dims(stretches, 2))
        return ops.where(hit, ops.mean(spectrogram, axis=(1, 2), keepdims=True), spectrogram)

    def _hit(self, batch, size, count, widest):
        """Which places of an axis one of the masks covers, `(B, size)`."""
        places = ops.expand_dims(ops.arange(size, dtype="float32"), 0)
        hit = places < 0
        for _ in range(count):
            width = keras.random.uniform((batch, 1), 0.0, widest, seed=self.seed_generator)
            room = ops.maximum(ops.cast(size, "float32") - width, 0.0)
            start = room * keras.random.uniform((batch, 1), seed=self.seed_generator)
            hit = ops.logical_or(hit, ops.logical_and(places >= start, places < start + width))
        return hit

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_frequency_masks": self.num_frequency_masks,
            "frequency_mask": self.frequency_mask,
            "num_time_masks": self.num_time_masks,
            "time_mask": self.time_mask,
        }
