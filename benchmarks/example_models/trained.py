"""A few steps of training on synthetic data, so that weights and statistics are not those of a new model."""

import keras
import numpy as np

ROWS = 48
random = np.random.default_rng(0)


def trained(model, inputs, targets, loss):
    """The model after a few steps of `fit`.

    Args:
        model: the model.
        inputs: array, or list or dict of arrays, of `ROWS` rows.
        targets: array, or dict of arrays.
        loss: as `compile` takes it.

    Returns:
        The model, and three rows of its inputs.
    """
    model.compile(keras.optimizers.Adam(1e-2), loss)
    model.fit(inputs, targets, batch_size=16, verbose=0)
    return model, keras.tree.map_structure(lambda each: each[:3], inputs)


def normal(*shape):
    return random.standard_normal(shape).astype("float32")


def uniform(*shape, low=0.0, high=1.0):
    return random.uniform(low, high, shape).astype("float32")


def integers(high, *shape, dtype="int32"):
    return random.integers(0, high, shape).astype(dtype)


def words(choices, *shape):
    """Strings, as a tensor: `fit` takes no array of strings."""
    return keras.ops.convert_to_tensor(random.choice(choices, shape).astype(object))
