"""Unique names for the values and nodes of a rewritten graph, after the layers that they come from."""

import collections
import re
from collections.abc import Iterable

import onnx_ir as ir

from keras_transformer.export.onnx.rewrites.rule import TRANSPOSED, VECTOR

_SEARCHED = ("Reshape", "Transpose", "Mul", "Add", "RotaryEmbedding", "Squeeze", "Unsqueeze")


def name_parts(graph: ir.Graph, weights: Iterable[str]) -> None:
    """Names initializers after the weights that they were made of, and nodes after their layers.

    A transposed square matrix keeps its own name: under that of the weight it would be taken for the weight itself.

    Args:
        graph: `onnx_ir.Graph`, changed in place.
        weights: names of the weights of the model, such as `encoder_block_0/feedforward/hidden/kernel`.
    """
    taken = set(graph.initializers)
    for name, value in list(graph.initializers.items()):
        source = _source(name)
        if source is None or (source in taken and source not in graph.initializers):
            continue
        if TRANSPOSED in name and value.shape is not None and value.shape == value.shape[::-1]:
            continue
        if source not in graph.initializers:
            _rename(graph, value, source)
    _name_nodes(graph, set(weights), set())


def make_names_unique(graph: ir.Graph) -> None:
    """Makes the names of values, and those of nodes, unique in the graph and its bodies.

    A body must not reuse the name of a value of an enclosing graph. Where sibling bodies reuse one, shape inference
    confuses the values.

    Args:
        graph: `onnx_ir.Graph`, changed in place. Its own inputs, outputs and initializers keep their names.
    """
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers.values()}
    name_value, name_node = _Names(value.name for value in fixed), _Names()
    for each in _parts(graph):
        if isinstance(each, ir.Node):
            each.name = name_node(each.name or each.op_type)
        elif each not in fixed and each.name != "":  # An omitted output has no name.
            each.name = name_value(each.name or "value")


class _Names:
    """Unique names: a number is appended to a name that is taken."""

    def __init__(self, taken: Iterable[str | None] = ()) -> None:
        self._taken = set(taken)
        self._counts: collections.Counter[str] = collections.Counter()

    def __call__(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            self._counts[wanted] += 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._taken.add(name)
        return name


def _parts(graph):
    """Inputs, initializers, nodes and their outputs, of the graph and its bodies."""
    yield from graph.inputs
    yield from list(graph.initializers.values())
    for node in graph:
        yield node
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                yield from _parts(attribute.as_graph())


def _source(name: str) -> str | None:
    """The name of the weight that an initializer was made of, or None."""
    match = re.match(rf"(.+)(?:{VECTOR}|{TRANSPOSED})(?:_\d+)*$", name)
    return match.group(1) if match else None


def _rename(graph, value, name):
    graph.initializers.pop(value.name)
    value.name = name
    value.const_value.name = name
    graph.register_initializer(value)


def _name_nodes(graph, weights, taken):
    for node in graph:
        layer = _layer_of(node, weights)
        if layer is not None:
            name, number = f"{layer}/{node.op_type}", 1
            while name in taken:
                number += 1
                name = f"{layer}/{node.op_type}_{number}"
            node.name = name
        taken.add(node.name)
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                _name_nodes(attribute.as_graph(), weights, taken)


def _layer_of(node: ir.Node, weights: set[str]) -> str | None:
    """The path of the layer whose weight a node reads; for an attention, of the layer that contains its projections."""
    if node.op_type in ("Attention", "GroupQueryAttention"):
        projection = _projection(node.inputs[0], weights, 8)
        return None if projection is None or "/" not in projection else projection.rsplit("/", 1)[0]
    for value in node.inputs:
        name = None if value is None or not value.is_initializer() else _source(value.name or "") or value.name
        if name is not None and name in weights:
            return name.rsplit("/", 1)[0]
    return None


def _projection(value: ir.Value | None, weights: set[str], steps: int) -> str | None:
    """The layer of the projection that a value is computed from."""
    node = None if value is None else value.producer()
    if node is None or not steps:
        return None
    layer = _layer_of(node, weights) if node.op_type == "MatMul" else None
    if layer is not None or node.op_type not in (*_SEARCHED, "MatMul"):
        return layer
    found = (_projection(each, weights, steps - 1) for each in node.inputs)
    return next((layer for layer in found if layer is not None), None)
