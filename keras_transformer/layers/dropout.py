"""Dropout, in a form that costs little compiled by XLA."""

from __future__ import annotations

import keras

from keras_transformer.backend.kernels.dropout import dropout
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


@serializable
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with random numbers that cost little: see `backend.dropout`.

    Arguments, masks and the state of the seed are those of Keras's layer. The numbers that follow from a seed are not: they
    also depend on whether XLA compiles the layer.

    Args:
        rate: float in [0, 1]. Probability of an element to be dropped.
        noise_shape: shape of the mask, with None where it is that of the inputs. Default None: the shape of the inputs.
        seed: int, or None for one from `keras.utils.set_random_seed`.

    Call arguments:
        inputs: float of any shape.
        training: bool. With False (default) the inputs are returned.

    Returns:
        A tensor of that shape.

    Example:

    >>> import numpy as np
    >>> y = np.asarray(Dropout(0.5, seed=1)(np.ones((10, 1000), "float32"), training=True))
    >>> sorted(set(y.ravel().tolist())), round(float(y.mean()), 1)
    ([0.0, 2.0], 1.0)

    Reference: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or not 0 < self.rate < 1:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, self.seed_generator.next(), self.noise_shape)
