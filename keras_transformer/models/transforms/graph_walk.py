"""Computing the nodes of a Functional graph with other arguments than those that they were built with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node


def walk(nodes: Iterable[Node], values: dict[int, keras.KerasTensor], call: Callable[..., object]) -> None:
    """Computes the outputs of `nodes` into `values`, from symbolic tensor (by id) to tensor.

    Missing inputs (masks, positions, segments) are None; a node whose inputs are all None has None as its outputs.
    """
    for node in nodes:
        given = [values.setdefault(id(tensor), None) for tensor in node.input_tensors]
        if all(value is None for value in given):
            values.update((id(tensor), None) for tensor in node.outputs)
            continue
        args, kwargs = node.arguments.fill_in(values)
        outputs = call(node, node.operation, args, dict(kwargs))
        values.update(zip(map(id, node.outputs), keras.tree.flatten(outputs), strict=True))


def argument(node: Node, name: str, values: dict[int, keras.KerasTensor]) -> Any:
    """The argument `name` of the call of a node, or None."""
    args, kwargs = node.arguments.fill_in({**dict.fromkeys(map(id, node.input_tensors)), **values})
    return inspect.signature(node.operation.call).bind(*args, **kwargs).arguments.get(name)
