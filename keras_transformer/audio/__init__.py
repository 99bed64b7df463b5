"""From sound to the spectrograms that models take."""

from keras_transformer.audio.augmentation import RandomSound, SpecAugment
from keras_transformer.audio.errors import AudioError, FeatureExtractorError
from keras_transformer.audio.loading import Recording, load_audio, resample, stack_recordings
from keras_transformer.audio.log_mel import LogMel

__all__ = [
    "AudioError",
    "FeatureExtractorError",
    "LogMel",
    "RandomSound",
    "Recording",
    "SpecAugment",
    "load_audio",
    "resample",
    "stack_recordings",
]
