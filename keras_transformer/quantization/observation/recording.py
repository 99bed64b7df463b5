"""What a model gives for a batch of calibration data, and what layers inside it get and give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor


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


@contextlib.contextmanager
def recorded(
    layers: Iterable[keras.layers.Layer], record: Callable[[keras.layers.Layer, Tensor, Tensor], None]
) -> Iterator[None]:
    """Context in which each call of the layers is followed by `record(layer, inputs, outputs)`.

    A lookup in a table of embeddings is not recorded: nothing is multiplied.
    """

    def wrap(layer, call):
        def wrapped(inputs, *args, **kwargs):
            outputs = call(inputs, *args, **kwargs)
            is_lookup = (
                isinstance(layer, keras.layers.Embedding) and not (args and args[0]) and not kwargs.get("reverse")
            )
            if not is_lookup:
                record(layer, inputs, outputs)
            return outputs

        return wrapped

    with keras_private.wrapped_calls(layers, wrap):
        yield
