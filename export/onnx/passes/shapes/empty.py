"""A pass that lets reshapes return tensors without elements, as of a sequence of length 0."""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import tape as ir_tape

from keras_transformer.export.onnx.graph import all_nodes
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, sizes_of
from keras_transformer.export.onnx.passes.shapes.sizes import vector_of
from keras_transformer.export.onnx.passes.shapes.symbolic import Size


def allow_empty(graph: ir.Graph, dims: Dims) -> int:
    """Lets a computed size of 0 in the target of a reshape be 0, in place.

    A 0 in a target stands for the size of the operand at the same axis, and beside it a -1 for nothing, unless the reshape
    says that it allows zeros: then no size of it may be -1, and each is read from the inputs of the graph.

    Args:
        graph: `onnx_ir.Graph`, changed in place, and the bodies in it.
        dims: its `Dims`.

    Returns:
        int: how many reshapes were changed.
    """
    found = [node for node in all_nodes(graph) if node.op_type == "Reshape" and node.domain == ""]
    return sum(_allow(node, dims) for node in found)


def _allow(node: ir.Node, dims: Dims) -> bool:
    target, sizes = node.inputs[1], sizes_of(node.outputs[0])
    is_allowed = node.attributes.get_int("allowzero", 0) == 1
    if is_allowed or target is None or constant(target) is not None:
        return False
    if sizes is not None and _are_read(sizes, dims):
        tape = ir_tape.Tape()
        target = vector_of(tape, sizes, dims, {})
        parent = node.graph
        if parent is None:
            raise ValueError(f"{node.name} is in no graph.")
        parent.insert_before(node, tape.nodes)
        node.replace_input_with(1, target)
    elif not _is_plain(dims.numbers(target)):
        return False
    node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
    return True


def _are_read(sizes: Sequence[Size | None], dims: Dims) -> bool:
    """Whether each size is a number or that of an input of the graph."""
    return all(isinstance(size, int) or size in dims.sources for size in sizes)


def _is_plain(numbers: object) -> bool:
    """Whether no number of a target stands for another one."""
    return isinstance(numbers, list) and all(isinstance(each, str) or each > 0 for each in numbers)
