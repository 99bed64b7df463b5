"""What layers say of a model's inputs: the largest integers, the longest sequences, and the tables of lookups."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.layer_order import layers_in_order

_SIZES = ("vocabulary_size", "input_dim", "num_tokens", "num_classes", "probe_limit")
_LENGTHS = ("max_sequence_length", "sequence_length", "max_length")


def integer_limits(tensors: Sequence[keras.KerasTensor]) -> list[int | None]:
    """Exclusive upper limit of every integer input that an embedding, one-hot rows, or another layer with a limit consumes.

    The functional graph is followed from each input through the operations that keep it an integer, into nested
    models, to the layers that look it up.

    Args:
        tensors: the symbolic inputs of a Functional model.

    Returns:
        A list with a limit for each input, None where no embedding consumes it.
    """
    return [_limit(tensor, set()) if _is_integer(tensor) else None for tensor in tensors]


def longest_sequence(model: keras.Model) -> int | None:
    """Smallest `max_sequence_length` (or KerasHub's `sequence_length`) of any layer; None where none is set."""
    found = []
    for layer in [model, *keras_private.flatten_layers(model)]:
        for attribute in _LENGTHS:
            value = getattr(layer, attribute, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                found.append(value)
    return min(found, default=None)


def _is_integer(tensor: keras.KerasTensor) -> bool:
    return "int" in str(tensor.dtype)


def _limit(tensor: keras.KerasTensor, seen: set[int]) -> int | None:
    """Smallest limit among the consumers of `tensor`, followed forward."""
    limits = []
    for node in keras_private.consumers(tensor):
        if id(node) in seen:
            continue
        seen.add(id(node))
        limits.append(_consumer_limit(node, tensor, keras.tree.flatten(node.input_tensors), seen))
    return min((limit for limit in limits if limit), default=None)


def _consumer_limit(node: Any, tensor: keras.KerasTensor, flat: list[keras.KerasTensor], seen: set[int]) -> int | None:
    operation = node.operation
    inner = keras_private.functional(operation)
    if isinstance(inner, keras.Model) and hasattr(inner, "inputs"):
        position = [tensor is each for each in flat].index(True)
        own = keras.tree.flatten(inner.inputs)
        if position < len(own):
            return _limit(own[position], seen)
    limit = _layer_limit(operation)
    if limit is not None:
        return limit
    results = [each for each in keras.tree.flatten(node.output_tensors) if _is_integer(each)]
    return min((found for found in (_limit(each, seen) for each in results) if found), default=None)


def _layer_limit(operation: keras.Operation) -> int | None:
    for attribute in _SIZES:
        value = getattr(operation, attribute, None)
        if isinstance(value, int) and value > 0:
            return value
    if not isinstance(operation, keras.layers.Layer):
        return None
    inner = (_layer_limit(layer) for layer in keras_private.flatten_layers(operation, include_self=False))
    return min((limit for limit in inner if limit), default=None)


def lookup_tables(model: keras.Model) -> tuple[Any, ...]:
    """The tables of a model's lookups, which a SavedModel keeps."""
    lookups = (keras.layers.StringLookup, keras.layers.IntegerLookup)
    return tuple(layer.lookup_table for layer in layers_in_order(model) if isinstance(layer, lookups))
