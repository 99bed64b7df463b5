"""ONNX graphs in onnx_ir: the bodies in them, their constants, and new nodes in the place of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray
from keras_transformer.export.onnx.options import CONTRIB
from keras_transformer.export.onnx.weights.lazy_tensors import tensor_of


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yields the graph and, recursively, the bodies of its loops and branches."""
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from all_graphs(attribute.as_graph())


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yields every node of the graph and of those bodies."""
    for each in all_graphs(graph):
        yield from each


def name_of(value: ir.Value | None) -> str:
    """Returns the name of a value; "" for an input that is left out."""
    return "" if value is None else value.name or ""


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Returns the attributes of a node by name."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def add_constant(graph: ir.Graph, name: str, array: AnyArray) -> ir.Value:
    """Adds an initializer to a graph, in place of one of the same name.

    Args:
        graph: `onnx_ir.Graph`, changed in place.
        name: name of the constant.
        array: its value, which may be lazy.

    Returns:
        The `onnx_ir.Value`.
    """
    tensor = tensor_of(array, name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.initializers.add(value)
    return value


def make_node(
    op: str, inputs: tuple[ir.Value | None, ...], result: str, name: str, domain: str = "", **attributes: Any
) -> ir.Node:
    """Makes a node with one result.

    Args:
        op: name of the operator.
        inputs: its inputs.
        result: name of its result.
        name: its name.
        domain: domain of the operator.
        attributes: its attributes.
    """
    ordered = dict(sorted(attributes.items()))  # Files do not depend on the order in which they are given.
    return ir.node(op, inputs, ordered, domain=domain, outputs=[ir.Value(name=result)], name=name)


class NodeMaker:
    """Makes nodes in the place of one, which are named after it.

    Args:
        node: `onnx_ir.Node` of a graph.
        store: function of a name and an array that adds a constant to the graph.
    """

    def __init__(self, node: ir.Node, store: Callable[[str, np.ndarray], ir.Value]) -> None:
        self._node, self._store = node, store
        self._result = name_of(node.outputs[0])
        self._name = node.name or self._result
        self._nodes: list[ir.Node] = []

    def __call__(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Makes a node; returns its result."""
        return self.into(f"{self._result}/{op}_{len(self._nodes) + 1}_0", op, *inputs, **attributes)

    def into(self, result: str, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Makes a node with a result of a given name: that of a result of the old node, or another."""
        name = f"{self._name}/{op}_{len(self._nodes) + 1}"
        self._nodes.append(make_node(op, inputs, result, name, **attributes))
        return self._nodes[-1].outputs[0]

    def constant(self, value: object, label: str) -> ir.Value:
        """Makes a constant."""
        return self._store(f"{self._result}/{label}", np.asarray(value))

    def insert(self) -> None:
        """Puts the new nodes before the old one."""
        graph = self._node.graph
        assert graph is not None
        graph.insert_before(self._node, self._nodes)

    def replace(self) -> bool:
        """Puts the new nodes in the place of the old one; returns whether there are any."""
        if not self._nodes:
            return False
        made = {value.name: value for node in self._nodes for value in node.outputs}
        for old in self._node.outputs:
            if old.name in made:
                new = made[old.name]
                new.type, new.shape = old.type, old.shape
                old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph = self._node.graph
        assert graph is not None
        graph.insert_before(self._node, self._nodes)
        graph.remove(self._node, safe=True)
        return True


def put_first(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """Puts new nodes before all others of a graph."""
    first = next(iter(graph), None)
    if first is None:
        graph.extend(nodes)
    else:
        graph.insert_before(first, list(nodes))


def drop_unread_constants(graph: ir.Graph) -> None:
    """Removes the initializers of a graph that nothing reads."""
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]


def import_contrib(model: ir.Model) -> None:
    """Adds the contrib operators of ONNX Runtime to the operator sets of a model that has any."""
    if any(node.domain == CONTRIB for node in all_nodes(model.graph)):
        model.opset_imports.setdefault(CONTRIB, 1)
