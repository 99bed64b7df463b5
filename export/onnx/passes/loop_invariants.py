"""Hoisting of loop-invariant states: a state that a loop does not change is read from the enclosing graph instead.

tf2onnx makes every tensor that a loop reads a state of the loop. ONNX Runtime copies states, weights included, in each
iteration, and cannot prepack weights that are states.
"""

import onnx


def hoist_invariants(model: onnx.ModelProto) -> int:
    """Removes unchanged states from every `Loop`.

    Args:
        model: `onnx.ModelProto`, changed in place.

    Returns:
        int: how many states were removed.
    """
    return _hoist(model.graph)


def _hoist(graph: onnx.GraphProto) -> int:
    count = 0
    kept_names = {value.name for value in graph.output}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                if node.op_type == "Loop":
                    count += _hoist_loop(graph, node, attribute.g, kept_names)
                count += _hoist(attribute.g)
    return count


def _hoist_loop(graph: onnx.GraphProto, node: onnx.NodeProto, body: onnx.GraphProto, kept_names: set[str]) -> int:
    # Before its states, a loop takes a count and a condition, and its body an iteration and a condition; the body
    # returns a condition before them.
    for value in body.input[:2]:  # Scalars, whose shape the converter omits where a body contains further bodies.
        value.type.tensor_type.shape.SetInParent()
    copies = {each.output[0]: each.input[0] for each in body.node if each.op_type == "Identity"}
    invariant = [
        index
        for index, value in enumerate(body.input[2:])
        if _origin(body.output[1 + index].name, copies) == value.name and node.output[index] not in kept_names
    ]
    inside = {body.input[2 + index].name: node.input[2 + index] for index in invariant}
    outside = {node.output[index]: node.input[2 + index] for index in invariant}
    for index in reversed(invariant):
        del body.input[2 + index], body.output[1 + index], node.input[2 + index], node.output[index]
    _rename(body, inside)
    _rename(graph, outside)
    return len(invariant)


def _origin(name: str, copies: dict[str, str]) -> str:
    while name in copies:
        name = copies[name]
    return name


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Renames the inputs of nodes, in the graph and in all bodies within it."""
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
