"""Deterministic names for the inputs and outputs of a Functional model."""

import re
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private

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
    """Names of the outputs in flattened order.

    A dict-structured model keeps its keys, an output keeps the name of its layer if it is not an automatic one; the
    others become `output`, or `output_0`, `output_1`...
    """
    flat = keras.tree.flatten_with_path(model.output)
    wanted = [_key(path) or _output_label(tensor) for path, tensor in flat]
    return _finish(wanted, "output")


def _key(path: Sequence[Any]) -> str | None:
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


def _finish(wanted: list[str | None], default: str) -> list[str]:
    """Fills in defaults, then makes every name a unique identifier."""
    if len(wanted) == 1:
        wanted = [wanted[0] or default]
    names: list[str] = []
    for index, given in enumerate(wanted):
        name = re.sub(r"\W", "_", given or f"{default}_{index}", flags=re.ASCII)
        name = f"_{name}" if name[0].isdigit() else name
        while name in names:
            name = f"{name}_{index}"
        names.append(name)
    return names
