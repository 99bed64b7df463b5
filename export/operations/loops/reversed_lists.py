"""Lists that a loop writes from their end to their start, as those of `keras.ops.scan(reverse=True)`.

tf2onnx takes each list that a loop writes for one of its outputs, to which an iteration adds an element: it has the elements
in the order of the iterations, and is reversed where it is stacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.part import constant_value, node_name
from keras_transformer.export.operations.insertion import rename
from keras_transformer.export.operations.loops.counters import LOOPS, VARIANT, has_lists

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_WRITE, _STACK, _COPY = "TensorListSetItem", "TensorListStack", "Identity"
# By how much each changes its first operand, per unit of the second one.
_STEPS = {"AddV2": 1, "Add": 1, "Sub": -1}


def with_stacks_reversed(graph_def: GraphDef) -> GraphDef:
    """A copy of a `GraphDef` in which the stacks of such lists are reversed; the same one if it has none."""
    if not has_lists(graph_def):
        return graph_def
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    functions = {each.signature.name: each for each in copy.library.function}
    found = [
        (owner, stack, body, write)
        for owner in (None, *copy.library.function)
        for stack, body, write in _stacks(list(copy.node if owner is None else owner.node_def), functions)
    ]
    for owner, stack, body, write in found:
        write.input[1] = body.signature.input_arg[0].name  # The counter of the iterations.
        (copy.node if owner is None else owner.node_def).extend(_reverse(owner, stack))
    return copy if found else graph_def


def _stacks(
    nodes: list[NodeDef], functions: Mapping[str, FunctionDef]
) -> Iterator[tuple[NodeDef, FunctionDef, NodeDef]]:
    """The operations that stack a list which a loop wrote backward, with the body of the loop and what writes there."""
    for loop in [each for each in nodes if each.op in LOOPS]:
        body = functions[loop.attr["body"].func.name]
        for position, kind in enumerate(loop.attr["T"].list.type):
            write = _backward_write(body, position) if kind == VARIANT else None
            if write is not None:
                results = {f"{loop.name}:{position}", f"{loop.name}:output:{position}"}
                yield from ((node, body, write) for node in nodes if node.op == _STACK and node.input[0] in results)


def _backward_write(body: FunctionDef, position: int) -> NodeDef | None:
    """What writes an element of the list at a position, each in front of that of the last iteration; or None."""
    nodes = {node.name: node for node in body.node_def}
    write = _source(nodes, body.ret[body.signature.output_arg[position].name])
    if write is None or write.op != _WRITE or write.input[0] != body.signature.input_arg[position].name:
        return None
    for place, argument in enumerate(body.signature.input_arg):
        if write.input[1] == argument.name:
            step = _source(nodes, body.ret[body.signature.output_arg[place].name])
            return write if step is not None and _step_of(step, argument.name, nodes) == -1 else None
    return None


def _source(nodes: Mapping[str, NodeDef], tensor: str) -> NodeDef | None:
    """The operation that computes a tensor of a function, behind copies; None for an argument."""
    node = nodes.get(node_name(tensor))
    while node is not None and node.op == _COPY:
        node = nodes.get(node_name(node.input[0]))
    return node


def _step_of(node: NodeDef, argument: str, nodes: Mapping[str, NodeDef]) -> int | None:
    """By how much an operation changes an argument, if it adds a constant to that."""
    value = constant_value(_source(nodes, node.input[1])) if node.op in _STEPS and node.input[0] == argument else None
    return None if value is None else _STEPS[node.op] * int(value)


def _reverse(owner: FunctionDef | None, stack: NodeDef) -> list[NodeDef]:
    """Reverses a stack in a function, or in the graph for None: what reads it reads the reversed one. Returns new nodes."""
    axis: NodeDef = tf.compat.v1.NodeDef(name=f"{stack.name}/axis", op="Const")
    axis.attr["dtype"].type = tf.int32.as_datatype_enum
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([0], tf.int32))
    axis.attr["_output_shapes"].list.shape.add().dim.add(size=1)
    turned: NodeDef = tf.compat.v1.NodeDef(name=stack.name, op="ReverseV2")
    turned.attr["T"].type, turned.attr["Tidx"].type = stack.attr["element_dtype"].type, tf.int32.as_datatype_enum
    if "_output_shapes" in stack.attr:
        turned.attr["_output_shapes"].CopyFrom(stack.attr["_output_shapes"])
    # The reversed one has the name of the stack, which may be that of an output of the graph.
    former, stack.name = stack.name, f"{stack.name}/in_order_of_iterations"
    turned.input[:] = [stack.name, axis.name] if owner is None else [f"{stack.name}:tensor:0", f"{axis.name}:output:0"]
    if owner is not None:
        rename(owner, {f"{former}:tensor:0": f"{former}:output:0"})
    return [axis, turned]
