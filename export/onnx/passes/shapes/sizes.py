"""A pass that computes sizes from the shapes of graph inputs instead of those of intermediate values."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import tape as ir_tape

from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import INTEGERS, constant
from keras_transformer.export.onnx.passes.shapes.symbolic import Size

_PLAIN = ("Concat", "Squeeze", "Unsqueeze", "Cast")


def replace_sizes(graph: ir.Graph, dims: Dims, known: dict[str, ir.Value] | None = None) -> int:
    """Replaces every integer that is known to be a size of a graph input, and every vector of such integers.

    A computed size, such as the number of slots of a cache inside a graph, is read where it is first found.

    Args:
        graph: `onnx_ir.Graph`, changed in place, and the bodies in it.
        dims: its `dims.Dims`.
        known: dict of the name of a computed size to its value in an enclosing graph.

    Returns:
        int: how many were replaced.
    """
    count, known = 0, dict(known or {})
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                count += replace_sizes(attribute.as_graph(), dims, known)
        count += _replace(graph, node, dims, known)
    return count


def _replace(graph, node, dims, known):
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
    found = vector_of(tape, sizes, dims, known)
    if not isinstance(held, list):
        found = tape.op("Squeeze", [found, _constant(tape, [0])])
    if value.dtype != ir.DataType.INT64:
        found = tape.op("Cast", [found], {"to": value.dtype})
    graph.insert_before(node, tape.nodes)
    ir.convenience.replace_all_uses_with(value, found)
    return 1


def vector_of(tape: ir_tape.Tape, sizes: Sequence[Size], dims: Dims, known: dict[str, ir.Value]) -> ir.Value:
    """Returns an integer vector with these sizes: numbers, sizes of graph inputs, and computed ones.

    Args:
        tape: what the nodes of the vector are added to.
        sizes: the symbolic sizes.
        dims: `Dims` of the graph.
        known: dict of the name of a computed size to its value.
    """
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
    """Whether a value is computed from constants, shapes of inputs and known sizes only."""
    if constant(value) is not None or any(value is each for each in known.values()):
        return True
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Shape":
        return node.inputs[0].is_graph_input() and "start" in node.attributes
    return node.op_type in _PLAIN and all(_is_plain(each, known) for each in node.inputs)
