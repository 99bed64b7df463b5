"""What a model does before its first training step."""

from __future__ import annotations

import keras


def build_optimizer(model: keras.Model) -> None:
    """Builds the optimizer of a model on TensorFlow: it traces a step that creates variables twice, and keeps both graphs.

    Call it in `make_train_function`, which Keras calls at the beginning of `fit` and `train_on_batch`.

    Args:
        model: `keras.Model`. If it is not compiled, or its optimizer is built, this does nothing.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> build_optimizer(model)
    >>> model.optimizer.built
    True
    """
    optimizer = getattr(model, "optimizer", None)
    if keras.backend.backend() == "tensorflow" and optimizer is not None and not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
