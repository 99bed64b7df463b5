"""Traversal of ONNX graphs and the bodies of their loops and branches."""

from collections.abc import Callable, Iterator

import onnx


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields the graph and, recursively, the bodies of its loops and branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_graphs(attribute.g)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yields every node of the graph and of those bodies."""
    for each in all_graphs(graph):
        yield from each.node


def remove_nodes(graph: onnx.GraphProto, is_removed: Callable[[onnx.NodeProto], bool]) -> None:
    """Removes nodes of a graph, not of its bodies. (`graph.node.remove` would compare the node with all before it.)"""
    for index in reversed(range(len(graph.node))):
        if is_removed(graph.node[index]):
            del graph.node[index]
