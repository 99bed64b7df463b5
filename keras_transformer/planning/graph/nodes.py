"""The nodes and functions of a traced TensorFlow graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def ancestors(ends: list[tf.Operation]) -> list[tf.Operation]:
    """Returns the nodes that some nodes depend on, themselves included, in the order in which they were traced.

    Args:
        ends: list of nodes of one graph.
    """
    pending = list(ends)
    found = set(pending)
    while pending:
        node = pending.pop()
        before = {*(tensor.op for tensor in node.inputs), *node.control_inputs} - found
        found |= before
        pending += before
    return [node for node in ends[0].graph.get_operations() if node in found] if found else []


def function_graph(graph: tf.Graph, attribute: tf.compat.v1.NameAttrList) -> tf.Graph:
    """Returns the graph of the function that an attribute of a node of `graph` names."""
    while not graph._is_function(attribute.name):
        graph = graph.outer_graph
    return graph._get_function(attribute.name).graph
