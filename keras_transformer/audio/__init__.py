"""Audio loading, log-mel spectrograms, convolutions over samples, synthesis, and augmentation."""

from keras_transformer.audio.augmentation import RandomSound, SpecAugment
from keras_transformer.audio.errors import AudioError, FeatureExtractorError
from keras_transformer.audio.filter_augment import FilterAugment
from keras_transformer.audio.loading import Recording, load_audio, resample, stack_recordings
from keras_transformer.audio.normalization import SoundNormalization
from keras_transformer.audio.sample_normalization import SampleNormalization
from keras_transformer.audio.spectrograms.log_mel import LogMel
from keras_transformer.audio.spectrograms.normalized_log_mel import NormalizedLogMel
from keras_transformer.audio.speech.conformer_convolution import ConformerConvolution
from keras_transformer.audio.speech.convolution_stem import ConvolutionStem
from keras_transformer.audio.speech.convolution_subsampling import ConvolutionSubsampling
from keras_transformer.audio.speech.convolutional_position import ConvolutionalPosition
from keras_transformer.audio.speech.feature_encoder import FeatureEncoder
from keras_transformer.audio.speech.frames import FrameMask
from keras_transformer.audio.speech.gumbel_quantizer import GumbelQuantizer
from keras_transformer.audio.speech.span_masking import SpanMasking
from keras_transformer.audio.speech.speech_adapter import BottleneckAdapter, SpeechAdapter
from keras_transformer.audio.synthesis.coupling_flow import CouplingFlow
from keras_transformer.audio.synthesis.depth_separable_convolutions import DepthSeparableConvolutions
from keras_transformer.audio.synthesis.duration_flows import AffineFlow, ConvolutionFlow
from keras_transformer.audio.synthesis.duration_predictors import DurationPredictor, StochasticDurationPredictor
from keras_transformer.audio.synthesis.frame_expansion import FrameCounts, FrameExpansion
from keras_transformer.audio.synthesis.hifi_gan import HiFiGAN
from keras_transformer.audio.synthesis.wave_net import WaveNet
from keras_transformer.audio.vocal_tract import VocalTractPerturbation

__all__ = [
    "AffineFlow",
    "AudioError",
    "BottleneckAdapter",
    "ConformerConvolution",
    "ConvolutionFlow",
    "ConvolutionStem",
    "ConvolutionSubsampling",
    "ConvolutionalPosition",
    "CouplingFlow",
    "DepthSeparableConvolutions",
    "DurationPredictor",
    "FeatureEncoder",
    "FeatureExtractorError",
    "FilterAugment",
    "FrameCounts",
    "FrameExpansion",
    "FrameMask",
    "GumbelQuantizer",
    "HiFiGAN",
    "LogMel",
    "NormalizedLogMel",
    "RandomSound",
    "Recording",
    "SampleNormalization",
    "SoundNormalization",
    "SpanMasking",
    "SpecAugment",
    "SpeechAdapter",
    "StochasticDurationPredictor",
    "VocalTractPerturbation",
    "WaveNet",
    "load_audio",
    "resample",
    "stack_recordings",
]
