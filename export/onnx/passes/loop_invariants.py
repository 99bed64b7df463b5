"""Hoisting of loop-invariant states: a state that a loop does not change is read from the enclosing graph instead.

tf2onnx makes every tensor that a loop reads a state of the loop. ONNX Runtime copies states, weights included, in each
iteration, and cannot prepack weights that are states.
"""

import onnx_ir as ir

from keras_transformer.export.onnx.graph import all_nodes

# Before its states, a loop takes a count and a condition, and its body an iteration and a condition; the body returns a
# condition before them.
_INPUTS, _ARGUMENTS, _RESULTS = 2, 2, 1


def hoist_invariants(model: ir.Model) -> int:
    """Removes unchanged states from every `Loop`.

    Args:
        model: `onnx_ir.Model`, changed in place.

    Returns:
        int: how many states were removed.
    """
    return sum(_hoist(node) for node in list(all_nodes(model.graph)) if node.op_type == "Loop")


def _hoist(node: ir.Node) -> int:
    body = node.attributes["body"].as_graph()
    for value in body.inputs[
        :_ARGUMENTS
    ]:  # Scalars, whose shape the converter omits where a body contains further bodies.
        value.shape = ir.Shape([]) if value.shape is None else value.shape
    invariant = [
        index
        for index, value in enumerate(body.inputs[_ARGUMENTS:])
        if _origin(body.outputs[_RESULTS + index]) is value and not node.outputs[index].is_graph_output()
    ]
    inside = [body.inputs[_ARGUMENTS + index] for index in invariant]
    for index in reversed(invariant):
        body.inputs.pop(_ARGUMENTS + index)
        body.outputs.pop(_RESULTS + index)
    for index, value in zip(invariant, inside, strict=True):
        state = node.inputs[_INPUTS + index]
        assert state is not None
        _return_copies(body, value)
        value.replace_all_uses_with(state)
        node.outputs[index].replace_all_uses_with(state)
    if invariant:
        _remove_states(node, invariant)
    return len(invariant)


def _return_copies(body: ir.Graph, value: ir.Value) -> None:
    """Lets a body return a copy of a value instead of the value."""
    for position, output in enumerate(body.outputs):
        if output is value:
            copy = ir.Value(name=f"{value.name}/{position}", type=value.type, shape=value.shape)
            body.append(ir.node("Identity", [value], outputs=[copy]))
            body.outputs[position] = copy


def _origin(value: ir.Value) -> ir.Value:
    """The value that one is a copy of."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _remove_states(node: ir.Node, numbers: list[int]) -> None:
    """Replaces a loop by one without some of its states, whose results nothing reads."""
    inputs = [each for at, each in enumerate(node.inputs) if at - _INPUTS not in numbers]
    kept = [each for at, each in enumerate(node.outputs) if at not in numbers]
    outputs = [ir.Value(name=each.name, type=each.type, shape=each.shape) for each in kept]
    new = ir.Node(node.domain, "Loop", inputs, node.attributes, outputs=outputs, name=node.name)
    ir.convenience.replace_all_uses_with(kept, outputs, replace_graph_outputs=True)
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, new)
    graph.remove(node, safe=True)
