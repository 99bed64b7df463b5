"""The class of the models of this package."""

from __future__ import annotations

import keras

from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.utils.serialization import serializable


@serializable
class TaskModel(TracedOnce, keras.Model):
    """Functional model whose training step TensorFlow traces once, and equal blocks of it as one function: see `TracedOnce`.

    Args:
        inputs: symbolic inputs, as of `keras.Model`.
        outputs: symbolic outputs, as of `keras.Model`.
        name: str.

    Returns:
        What `keras.Model` with these inputs and outputs returns.

    Example:

    >>> inputs = keras.Input((2,))
    >>> model = TaskModel(inputs, keras.layers.Dense(3)(inputs))
    >>> model.output_shape
    (None, 3)
    """
