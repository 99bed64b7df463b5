"""Audio loading, log-mel spectrograms and augmentation."""

from keras_transformer.audio.augmentation import RandomSound, SpecAugment
from keras_transformer.audio.errors import AudioError, FeatureExtractorError
from keras_transformer.audio.filter_augment import FilterAugment
from keras_transformer.audio.loading import Recording, load_audio, resample, stack_recordings
from keras_transformer.audio.log_mel import LogMel
from keras_transformer.audio.normalization import SoundNormalization
from keras_transformer.audio.vocal_tract import VocalTractPerturbation

__all__ = [
    "AudioError",
    "FeatureExtractorError",
    "FilterAugment",
    "LogMel",
    "RandomSound",
    "Recording",
    "SoundNormalization",
    "SpecAugment",
    "VocalTractPerturbation",
    "load_audio",
    "resample",
    "stack_recordings",
]
