"""Normalization of the samples of recordings."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count, is_number
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Path, Shape, Tensor


@serializable
class SampleNormalization(keras.layers.Layer):
    """Normalization of recordings to mean 0 and variance 1: `(x - μ) / √(σ² + ε)`, over the real samples of each.

    Padding becomes 0. The layer is exported with the model. All is computed in float32 under any dtype policy.

    Args:
        sample_rate: int, in Hz: the rate that the model was trained with; recordings are not resampled. Default 16,000.
        normalize: bool. False for recordings as they are, with padding set to 0. Default True.
        epsilon: float > 0. Default 1e-7.

    Call arguments:
        samples: float `(B, samples)`.
        padding_mask: boolean `(B, samples)`, True = a real sample; None for all real.

    Returns:
        `(B, samples)`.

    Raises:
        ValueError: an argument out of its range.
        AudioError: samples of another rank.

    Example:

    >>> import numpy as np
    >>> samples, mask = np.array([[1.0, 3.0, 9.0]], "float32"), np.array([[1, 1, 0]])
    >>> SampleNormalization()(samples, padding_mask=mask).numpy().round(4).tolist()
    [[-1.0, 1.0, 0.0]]

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 2; as transformers' `Wav2Vec2FeatureExtractor`.
    """

    def __init__(
        self, sample_rate: int = 16_000, normalize: bool = True, epsilon: float = 1e-7, **kwargs: object
    ) -> None:
        # No autocast: samples keep their precision.
        super().__init__(autocast=False, **kwargs)
        if not is_count(sample_rate):
            raise ValueError(f"sample_rate must be an int of at least 1. Received: {sample_rate!r}")
        if not is_number(epsilon) or not epsilon > 0:
            raise ValueError(f"epsilon must be a number above 0. Received: {epsilon!r}")
        self.sample_rate = sample_rate
        self.normalize = normalize
        self.epsilon = epsilon

    @classmethod
    def from_huggingface(cls, folder: Path, **kwargs: Unpack[LayerOptions]) -> SampleNormalization:
        """Reads the feature extractor of a Hugging Face checkpoint.

        Args:
            folder: str or path of a folder with `preprocessor_config.json`, or with a `processor_config.json` that has a
                "feature_extractor", of type `Wav2Vec2FeatureExtractor`.
            **kwargs: Keras's layer arguments, such as `name`.

        Returns:
            A `SampleNormalization`.

        Raises:
            FeatureExtractorError: no such file, another type, or a setting that is invalid or not supported.
        """
        from keras_transformer.audio.hugging_face import sample_settings

        return cls(**sample_settings(folder), **kwargs)

    def call(self, samples: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if len(samples.shape) != 2:
            raise AudioError(f"{self.name} takes samples of shape (B, samples). Received shape: {tuple(samples.shape)}")
        samples = ops.cast(samples, "float32")
        real = ops.ones_like(samples, dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        x = ops.where(real, samples, 0.0)
        if self.normalize:
            count = ops.maximum(ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True), 1.0)
            x = ops.where(real, x - ops.sum(x, axis=1, keepdims=True) / count, 0.0)
            variance = ops.sum(ops.square(x), axis=1, keepdims=True) / count
            x = x / ops.sqrt(variance + self.epsilon)
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, samples_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return samples_shape

    def get_config(self) -> Config:
        own = {name: getattr(self, name) for name in ("sample_rate", "normalize", "epsilon")}
        return {**super().get_config(), **own}
