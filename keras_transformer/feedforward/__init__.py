"""What a block computes at each token by itself."""

from keras_transformer.feedforward.activations import ACTIVATIONS, gelu_tanh
from keras_transformer.feedforward.dense import DenseFeedForward
from keras_transformer.feedforward.gated import GatedFeedForward

FEEDFORWARDS = {
    "dense": DenseFeedForward,
    "gated": GatedFeedForward,
}

__all__ = ["ACTIVATIONS", "FEEDFORWARDS", "DenseFeedForward", "GatedFeedForward", "gelu_tanh"]
