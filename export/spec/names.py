"""Deterministic names for the inputs and outputs of a Functional model."""

import re
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.graph.interface_names import identifier

_AUTOMATIC_INPUT = re.compile(r"^(keras_tensor|input_layer)(_\d+)?$")


def input_names(model: keras.Model) -> list[str]:
    """Names of the inputs in flattened order.

    A dict-structured model keeps its keys, a named `Input` its name. An automatic name (it depends on how many models
    were built before) becomes `input`, or `input_0`, `input_1`...
    """
    flat = keras.tree.flatten_with_path(model.input)
    wanted = [_key(path) or _input_label(tensor) for path, tensor in flat]
    return _finish(wanted, "input")


def output_names(model: keras.Model) -> list[str]:
    """Names of the outputs in the order of the model: that of the keys of a dict, not of the sorted ones.

    A dict-structured model keeps its keys, an output keeps the name of its layer if it is not an automatic one; the
    others become `output`, or `output_0`, `output_1`...
    """
    wanted = [_key(path) or _output_label(tensor) for path, tensor in outputs_in_order(model.output)]
    return _finish(wanted, "output")


def output_labels(model: keras.Model) -> dict[str, str]:
    """The keys of a dict of outputs that are no identifiers, by the names of these outputs."""
    keys = [_key(path) for path, _ in outputs_in_order(model.output)]
    return {name: key for name, key in zip(output_names(model), keys, strict=True) if key not in (None, name)}


def outputs_in_order(structure: object) -> list[tuple[tuple[str | int, ...], Any]]:
    """The path and the value of each leaf of a structure of outputs, in the order of the structure.

    `keras.tree.flatten` sorts the keys of dicts.

    Example:

    >>> outputs_in_order({"b": [1, 2], "a": 3})
    [(('b', 0), 1), (('b', 1), 2), (('a',), 3)]
    """
    if isinstance(structure, dict):
        parts = list(structure.items())
    elif isinstance(structure, (list, tuple)):
        parts = list(enumerate(structure))
    else:
        return [((), structure)]
    return [((key, *path), leaf) for key, part in parts for path, leaf in outputs_in_order(part)]


def _key(path: Sequence[object]) -> str | None:
    """`("a", "b")` of a nested dict as `a_b`; None for positions in a list and for a bare tensor."""
    return "_".join(str(part) for part in path) if any(isinstance(part, str) for part in path) else None


def _input_label(tensor: keras.KerasTensor) -> str | None:
    return None if _AUTOMATIC_INPUT.match(tensor.name) else tensor.name


def _output_label(tensor: keras.KerasTensor) -> str | None:
    operation = keras_private.producer(tensor)
    if not isinstance(operation, keras.layers.Layer) or isinstance(operation, keras.layers.InputLayer):
        return None
    return None if re.match(rf"^{automatic_name(operation)}(_\d+)?$", operation.name) else operation.name


def automatic_name(operation: keras.Operation) -> str:
    """Keras's default name of a layer of this class: `Conv2D` is `conv2d`, `GlobalAveragePooling1D` is spelled out."""
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", type(operation).__name__)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()


def _finish(wanted: Sequence[str | None], default: str) -> list[str]:
    """Fills in defaults, then makes every name a unique identifier that begins with a letter."""
    if len(wanted) == 1:
        wanted = [wanted[0] or default]
    names: list[str] = []
    for index, given in enumerate(wanted):
        name = identifier(given or f"{default}_{index}", default)
        while name in names:
            name = f"{name}_{index}"
        names.append(name)
    return names
