"""What a loop hands from turn to turn without changing it is read from outside instead.

tf2onnx makes every tensor that a loop reads a state of the loop. ONNX Runtime would copy such states, weights among them, in
each turn, and could not prepare the weights for its products beforehand.
"""

import onnx


def hoist_invariants(model):
    """Takes unchanged states out of every `Loop`.

    Args:
        model: `onnx.ModelProto`, changed in place.

    Returns:
        int: how many states were taken out.
    """
    return _hoist(model.graph)


def _hoist(graph):
    count = 0
    kept_names = {value.name for value in graph.output}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                if node.op_type == "Loop":
                    count += _hoist_loop(graph, node, attribute.g, kept_names)
                count += _hoist(attribute.g)
    return count


def _hoist_loop(graph, node, body, kept_names):
    # A loop has a count and a condition before its states, its body a turn and a condition, and a condition comes out.
    for value in body.input[:2]:  # Numbers, which the converter leaves open where a body holds bodies of its own.
        value.type.tensor_type.shape.SetInParent()
    copies = {each.output[0]: each.input[0] for each in body.node if each.op_type == "Identity"}
    invariant = [
        place
        for place, value in enumerate(body.input[2:])
        if _origin(body.output[1 + place].name, copies) == value.name and node.output[place] not in kept_names
    ]
    inside = {body.input[2 + place].name: node.input[2 + place] for place in invariant}
    outside = {node.output[place]: node.input[2 + place] for place in invariant}
    for place in reversed(invariant):
        del body.input[2 + place], body.output[1 + place], node.input[2 + place], node.output[place]
    _rename(body, inside)
    _rename(graph, outside)
    return len(invariant)


def _origin(name, copies):
    while name in copies:
        name = copies[name]
    return name


def _rename(graph, names):
    """Renames what nodes read, in the graph and in all bodies within it."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
