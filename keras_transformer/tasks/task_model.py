"""The class of the models of this package."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.backend.first_step import build_optimizer
from keras_transformer.utils.serialization import serializable


@serializable
class TaskModel(keras.Model):
    """Functional model whose training step TensorFlow traces once; Keras traces that of its own models twice.

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

    def make_train_function(self, force: bool = False) -> Any:
        """Builds the optimizer first: see `backend.first_step`."""
        build_optimizer(self)
        return super().make_train_function(force)
