"""Feed-forward layers, which process each token separately."""

import keras

from keras_transformer.feedforward.activations import ACTIVATIONS, Gating, gelu_tanh, quick_gelu
from keras_transformer.feedforward.bit_dense import BitDense
from keras_transformer.feedforward.clamped_swiglu import ClampedSwiGLU
from keras_transformer.feedforward.convolutional import ConvolutionalFeedForward
from keras_transformer.feedforward.dense import DenseFeedForward
from keras_transformer.feedforward.experts.group_limited_router import GroupLimitedRouter
from keras_transformer.feedforward.experts.mixture_of_experts import MixtureOfExperts
from keras_transformer.feedforward.experts.router import TopKRouter
from keras_transformer.feedforward.experts.shared_expert import SharedExpertMixture
from keras_transformer.feedforward.gated import GatedFeedForward
from keras_transformer.feedforward.gated_linear_unit import GatedLinearUnit
from keras_transformer.feedforward.gaussian_top_k import GaussianTopK
from keras_transformer.feedforward.ista import ISTA
from keras_transformer.feedforward.mix import MixFeedForward
from keras_transformer.layers.ternary import TernaryPolicy, frozen_twin, ternary_twin

FEEDFORWARDS: dict[str, type[keras.layers.Layer]] = {
    "dense": DenseFeedForward,
    "gated": GatedFeedForward,
    "mixture_of_experts": MixtureOfExperts,
}

__all__ = [
    "ACTIVATIONS",
    "FEEDFORWARDS",
    "ISTA",
    "BitDense",
    "ClampedSwiGLU",
    "ConvolutionalFeedForward",
    "DenseFeedForward",
    "GatedFeedForward",
    "GatedLinearUnit",
    "Gating",
    "GaussianTopK",
    "MixFeedForward",
    "GroupLimitedRouter",
    "MixtureOfExperts",
    "SharedExpertMixture",
    "TernaryPolicy",
    "TopKRouter",
    "frozen_twin",
    "gelu_tanh",
    "ternary_twin",
    "quick_gelu",
]
