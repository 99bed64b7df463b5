"""Sizes read once: what a graph computes from the shapes of intermediate values comes from the shapes of its inputs."""

import numpy as np
import onnx_ir as ir
from onnx_ir import tape as ir_tape

from keras_transformer.export.onnx.shapes.integers import INTEGERS, constant

_PLAIN = ("Concat", "Squeeze", "Unsqueeze", "Cast")


def settle_sizes(graph, dims, known=None):
    """Replaces every integer that is known to be a size of an input, or a vector of such.

    A size that is computed, as the slots of a cache inside a graph are, is read where it is first found.

    Args:
        graph: `onnx_ir.Graph`, changed in place, and the bodies in it.
        dims: its `dims.Dims`.
        known: dict of the name of a computed size to an integer that holds it, around the graph.

    Returns:
        int: how many were replaced.
    """
    count, known = 0, dict(known or {})
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                count += settle_sizes(attribute.as_graph(), dims, known)
        count += _settle(graph, node, dims, known)
    return count


def _settle(graph, node, dims, known):
    value = node.outputs[0]
    held = None if value.is_graph_output() or value.dtype not in INTEGERS else dims.held(value)
    if held is None or not value.uses() or _is_plain(value, known):
        return 0
    sizes = held if isinstance(held, list) else [held]
    names = {size for size in sizes if isinstance(size, str) and size not in dims.sources and size not in known}
    if len(sizes) == 1 and names:
        known[sizes[0]] = value
    if not sizes or names:
        return 0
    tape = ir_tape.Tape()
    found = _vector(tape, sizes, dims, known)
    if not isinstance(held, list):
        found = tape.op("Squeeze", [found, _constant(tape, [0])])
    if value.dtype != ir.DataType.INT64:
        found = tape.op("Cast", [found], {"to": value.dtype})
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_all_uses_with(value, found)
    return 1


def _vector(tape, sizes, dims, known):
    parts = []
    for size in sizes:
        if isinstance(size, int):
            parts.append(_constant(tape, [size]))
        elif size in dims.sources:
            source, axis = dims.sources[size]
            parts.append(tape.op("Shape", [source], {"start": axis, "end": axis + 1}))
        else:
            parts.append(_as_vector(tape, known[size], dims))
    return parts[0] if len(parts) == 1 else tape.op("Concat", parts, {"axis": 0})


def _as_vector(tape, value, dims):
    if not isinstance(dims.held(value), list):
        value = tape.op("Unsqueeze", [value, _constant(tape, [0])])
    return tape.op("Cast", [value], {"to": ir.DataType.INT64})


def _constant(tape, numbers):
    return tape.op("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))})


def _is_plain(value, known):
    """Whether a value is already made of constants, shapes of inputs and known sizes alone."""
    if constant(value) is not None or any(value is each for each in known.values()):
        return True
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Shape":
        return node.inputs[0].is_graph_input() and "start" in node.attributes
    return node.op_type in _PLAIN and all(_is_plain(each, known) for each in node.inputs)
