"""Functional models: the nodes of their graphs, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras

from keras_transformer.utils.types import Tensors


class Arguments(Protocol):
    """The arguments of one call of an operation, with symbolic tensors among them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def fill_in(self, tensor_dict: Mapping[int, object]) -> tuple[tuple[Any, ...], dict[str, Any]]: ...


class Node(Protocol):
    """One call of an operation in the graph of a Functional model."""

    operation: keras.Operation
    arguments: Arguments
    outputs: list[keras.KerasTensor]
    output_tensors: list[keras.KerasTensor]

    @property
    def input_tensors(self) -> list[keras.KerasTensor]: ...


def functional(model: keras.layers.Layer) -> keras.layers.Layer:
    """Returns the Functional model in a built `Sequential`; anything else unchanged."""
    return getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model


def has_own_input(model: keras.Sequential) -> bool:
    """Returns whether a built `Sequential` was given an `Input`, and did not make one for the first data that it got.

    What it was given is tracked before the other layers.
    """
    _, tracked = model._tracker.config["layers"]
    return isinstance(tracked[0], keras.layers.InputLayer)


def nodes_in_order(model: keras.Model) -> list[Node]:
    """Returns the nodes of a Functional model in the order of computation, without its inputs."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    return [node for depth in depths for node in model._nodes_by_depth[depth] if not node.is_input]


def is_graph(layer: keras.Operation) -> bool:
    """Returns whether calls of `layer` run the nodes of a Functional graph, and nothing else.

    A subclass whose `call` only prepares inputs says so with the class attribute `runs_graph`.
    """
    from keras.src.models.functional import Functional

    runs_graph = type(layer).call is Functional.call or getattr(type(layer), "runs_graph", False)
    return isinstance(layer, Functional) and runs_graph


def input_names(model: keras.Model) -> list[str]:
    """Returns the keys by which a Functional model takes a dict of inputs, in the order of `model.inputs`."""
    structure = model._inputs_struct
    keys = {id(each): key for key, each in structure.items()} if isinstance(structure, dict) else {}
    return [keys.get(id(each)) or producer(each).name for each in model.inputs]


def pack_inputs(model: keras.Model, tensors: Sequence[object]) -> Tensors:
    """Returns tensors in the order of `model.inputs` as the structure with which a Functional model is called."""
    return keras.tree.pack_sequence_as(model._inputs_struct, list(tensors))


def fill_in(node: Node, values: Mapping[int, object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a node, with values by the ids of symbolic tensors in their place."""
    return node.arguments.fill_in(values)


def named_arguments(node: Node) -> dict[str, Any]:
    """Returns the arguments by keyword with which a node calls its operation."""
    return dict(node.arguments.kwargs)


def first_argument(node: Node) -> Any:
    """Returns the symbolic tensors that a node's operation takes as its first argument."""
    return node.arguments.args[0] if node.arguments.args else next(iter(node.arguments.kwargs.values()))


def producer(tensor: keras.KerasTensor) -> keras.Operation:
    """Returns the operation that computes a symbolic tensor."""
    return tensor._keras_history.operation


def inputs_of(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """Returns the symbolic tensors from which a symbolic tensor is computed; none for an input."""
    history = tensor._keras_history
    return list(history.operation._inbound_nodes[history.node_index].input_tensors)


def consumers(tensor: keras.KerasTensor) -> list[Node]:
    """Returns the nodes that take a symbolic tensor as input, in every model that was made of it."""
    return [
        node
        for node in producer(tensor)._outbound_nodes
        if any(tensor is each for each in keras.tree.flatten(node.input_tensors))
    ]
