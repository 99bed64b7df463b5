"""Sizes read once: what a graph computes from the shapes of intermediate values comes from the shapes of its inputs."""

import numpy as np
import onnx_ir as ir
from onnx_ir import tape as ir_tape

from keras_transformer.export.onnx.operators import INTEGERS, constant

_PLAIN = ("Concat", "Squeeze", "Cast")


def settle_sizes(graph, dims):
    """Replaces every integer that is known to be a size of an input, or a vector of such.

    Args:
        graph: `onnx_ir.Graph`, changed in place, and the bodies in it.
        dims: its `dims.Dims`.

    Returns:
        int: how many were replaced.
    """
    count = 0
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                count += settle_sizes(attribute.as_graph(), dims)
        count += _settle(graph, node, dims)
    return count


def _settle(graph, node, dims):
    value = node.outputs[0]
    held = None if value.is_graph_output() or value.dtype not in INTEGERS else dims.held(value)
    if held is None or _is_plain(value) or not value.uses():
        return 0
    sizes = held if isinstance(held, list) else [held]
    if not sizes or any(isinstance(size, str) and size not in dims.sources for size in sizes):
        return 0
    tape = ir_tape.Tape()
    found = _vector(tape, sizes, dims)
    if not isinstance(held, list):
        found = tape.op("Squeeze", [found, _constant(tape, [0])])
    if value.dtype != ir.DataType.INT64:
        found = tape.op("Cast", [found], {"to": value.dtype})
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_all_uses_with(value, found)
    return 1


def _vector(tape, sizes, dims):
    parts = []
    for size in sizes:
        if isinstance(size, int):
            parts.append(_constant(tape, [size]))
        else:
            source, axis = dims.sources[size]
            parts.append(tape.op("Shape", [source], {"start": axis, "end": axis + 1}))
    return parts[0] if len(parts) == 1 else tape.op("Concat", parts, {"axis": 0})


def _constant(tape, numbers):
    return tape.op("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))})


def _is_plain(value):
    """Whether a value is already made of constants and shapes of inputs alone."""
    if constant(value) is not None:
        return True
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Shape":
        return node.inputs[0].is_graph_input() and "start" in node.attributes
    return node.op_type in _PLAIN and all(_is_plain(each) for each in node.inputs)
