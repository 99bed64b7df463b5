"""Augmentation of recordings and spectrograms, as layers of the model."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.random_augmentation import RandomAugmentation, check_range
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class RandomSound(RandomAugmentation):
    """Random speed, shift, gain and noise of recordings, in training only.

    Sample t becomes `e^g x(s t - d) + n`, with linear interpolation between the samples of x and 0 outside of them. The
    speed s changes the pitch too. Each recording has its own s, d, g, and level of noise.

    Args:
        speed: float in [0, 1). Maximum deviation of s from 1. Default 0.
        shift: float in [0, 1). Maximum of |d|, as a fraction of the recording. Default 0.
        gain: float >= 0. Maximum of |g|. Default 0.
        noise: float >= 0. Maximum standard deviation of the white noise n, relative to the recording's largest magnitude.
            Default 0.
        seed: int or None.

    Call arguments:
        inputs: float `(B, samples)`.

    Returns:
        `(B, samples)`; the inputs, unless `training`.

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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed, **kwargs)
        check_range(1, speed=speed, shift=shift)
        check_range(float("inf"), gain=gain, noise=noise)
        self.speed = speed
        self.shift = shift
        self.gain = gain
        self.noise = noise

    def augment(self, samples: Tensor) -> Tensor:
        samples = self._resample(samples) * ops.cast(ops.exp(self._draw(samples, self.gain)), samples.dtype)
        if not self.noise:
            return samples
        level = ops.max(ops.absolute(samples), axis=1, keepdims=True) * ops.absolute(self._draw(samples, self.noise))
        return samples + level * keras.random.normal(ops.shape(samples), dtype=samples.dtype, seed=self.seed_generator)

    def _draw(self, samples, limit):
        """Returns a number in [-limit, limit] for each recording, `(B, 1)`."""
        return keras.random.uniform((ops.shape(samples)[0], 1), -limit, limit, seed=self.seed_generator)

    def _resample(self, samples):
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
    """Returns the samples at integer times `(B, samples)`, 0 outside of the recording."""
    indices = ops.cast(times, "int32")
    inside = ops.logical_and(indices >= 0, indices < length)
    found = ops.take_along_axis(samples, ops.clip(indices, 0, length - 1), axis=1)
    return ops.where(inside, found, ops.zeros_like(found))


@serializable
class SpecAugment(RandomAugmentation):
    """SpecAugment: replaces random frequency bands and time spans of spectrograms by the mean, in training only.

    Each mask has a random width, up to its limit, and a random position; each spectrogram has its own.

    Args:
        num_frequency_masks: int >= 0. Default 2.
        frequency_mask: int >= 1. Maximum width of a frequency mask, in mel bins. Default 8.
        num_time_masks: int >= 0. Default 2.
        time_mask: int >= 1. Maximum width of a time mask, in frames. Default 10.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`.

    Returns:
        The same shape; the inputs, unless `training`.

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
        **kwargs: Unpack[LayerOptions],
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

    def augment(self, spectrogram: Tensor) -> Tensor:
        batch, frames, bins = ops.shape(spectrogram)
        bands = self._masks(batch, bins, self.num_frequency_masks, self.frequency_mask)
        spans = self._masks(batch, frames, self.num_time_masks, self.time_mask)
        masked = ops.logical_or(ops.expand_dims(bands, 1), ops.expand_dims(spans, 2))
        return ops.where(masked, ops.mean(spectrogram, axis=(1, 2), keepdims=True), spectrogram)

    def _masks(self, batch, size, count, max_width):
        """Returns which indices of an axis are covered by one of the masks, `(B, size)`."""
        indices = ops.expand_dims(ops.arange(size, dtype="float32"), 0)
        masked = indices < 0
        for _ in range(count):
            width = keras.random.uniform((batch, 1), 0.0, max_width, seed=self.seed_generator)
            max_start = ops.maximum(ops.cast(size, "float32") - width, 0.0)
            start = max_start * keras.random.uniform((batch, 1), seed=self.seed_generator)
            masked = ops.logical_or(masked, ops.logical_and(indices >= start, indices < start + width))
        return masked

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_frequency_masks": self.num_frequency_masks,
            "frequency_mask": self.frequency_mask,
            "num_time_masks": self.num_time_masks,
            "time_mask": self.time_mask,
        }
