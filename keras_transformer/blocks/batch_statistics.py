"""Layers that count over the batches that they see."""

import keras

from keras_transformer.backend import keras_private
from keras_transformer.feedforward import MixtureOfExperts


def refuse_batch_statistics(stack, reason):
    """Raises `ValueError`, with the reason, where a part of `stack` counts over a batch, as norms and experts may."""
    for layer in keras_private.flatten_layers(stack):
        if isinstance(layer, (keras.layers.BatchNormalization, MixtureOfExperts)):
            raise ValueError(f"{layer.name} counts over a batch, {reason}: take another layer.")
