"""What layers inside a model get and give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor


@contextlib.contextmanager
def recorded(layers: Iterable[keras.layers.Layer], record: Callable[[Any, Tensor, Tensor], None]) -> Iterator[None]:
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
