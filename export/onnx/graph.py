"""Traversal of ONNX graphs and the bodies of their loops and branches, and new nodes in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from keras_transformer.export.onnx.options import CONTRIB


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


class NodeMaker:
    """Appends nodes that replace one node, and are named after it."""

    def __init__(self, nodes: list[onnx.NodeProto], node: onnx.NodeProto, store: Any) -> None:
        self._nodes, self._store = nodes, store
        self._name = node.name or node.output[0]
        self._result = node.output[0]
        self._count = 0

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.several(1, op, *inputs, **attributes)[0]

    def several(self, count: int, op: str, *inputs: str, **attributes: Any) -> list[str]:
        self._count += 1
        outputs = [f"{self._result}/{op}_{self._count}_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(op, inputs, outputs, f"{self._name}/{op}_{self._count}", **attributes))
        return outputs

    def into(self, result: str, op: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        self._nodes.append(helper.make_node(op, inputs, [result], f"{self._name}/{op}_{self._count}", **attributes))
        return result

    def constant(self, value: Any, label: str) -> str:
        return self._store(f"{self._result}/{label}", np.asarray(value))


def import_contrib(model: onnx.ModelProto) -> None:
    """Adds the contrib operators of ONNX Runtime to the operator sets of a model that has any."""
    is_imported = any(each.domain == CONTRIB for each in model.opset_import)
    if not is_imported and any(node.domain == CONTRIB for node in all_nodes(model.graph)):
        model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
