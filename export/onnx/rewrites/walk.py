"""Walking ONNX graphs, with the bodies of their loops and branches."""

import onnx


def each_graph(graph):
    """The graph, and the bodies of its loops and branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from each_graph(attribute.g)


def all_nodes(graph):
    """Every node of the graph and of those bodies."""
    for each in each_graph(graph):
        yield from each.node
