"""Detection of layers that update statistics of a batch."""

import keras

from keras_transformer.backend import keras_private
from keras_transformer.feedforward import MixtureOfExperts


def refuse_batch_statistics(stack: keras.layers.Layer, reason: str) -> None:
    """Raises `ValueError` if a layer of `stack` updates statistics of the batch, as batch norms and experts do."""
    for layer in keras_private.flatten_layers(stack):
        if isinstance(layer, (keras.layers.BatchNormalization, MixtureOfExperts)):
            raise ValueError(f"{layer.name} updates statistics of the batch, {reason}: use another layer.")
