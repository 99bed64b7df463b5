"""The outputs of a model for a batch of calibration data."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np

from keras_transformer.backend import keras_private


def outputs_of(model: keras.Model, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model, as a list of arrays.

    Args:
        model: Functional `keras.Model`.
        batch: dict of arrays by input name, one of `calibration.as_batches`.

    Example:

    >>> model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Identity()])
    >>> [each.tolist() for each in outputs_of(model, {"x": np.ones((1, 2))})]
    [[[1.0, 1.0]]]
    """
    graph = keras_private.functional(model)
    tensors = [keras.ops.convert_to_tensor(batch[name]) for name in keras_private.input_names(graph)]
    outputs = graph(keras_private.pack_inputs(graph, tensors), training=False)
    return [keras.ops.convert_to_numpy(each) for each in keras.tree.flatten(outputs)]
