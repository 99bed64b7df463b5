"""Loops without a counter and a largest count, as in `tf.nn.ctc_loss`, with both in front of what they carry.

`tf.while_loop` puts these two first, and tf2onnx takes what a loop carries first for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.part import every_node
from keras_transformer.export.operations.insertion import rename

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

LOOPS = ("While", "StatelessWhile")
# The type of lists.
VARIANT = tf.variant.as_datatype_enum
_COUNTER, _MAXIMUM = "loop_counter", "maximum_iterations"
_INTEGER = tf.int32.as_datatype_enum
# Of loops without a largest count.
_ENDLESS = -1


def has_lists(graph_def: GraphDef) -> bool:
    """Whether a loop of a `GraphDef` carries lists."""
    return any(node.op in LOOPS and VARIANT in node.attr["T"].list.type for node in every_node(graph_def))


def with_counters(graph_def: GraphDef) -> GraphDef:
    """A copy of a `GraphDef` in which each loop carries a counter and a largest count; the same one if each does."""
    functions = {each.signature.name: each for each in graph_def.library.function}
    loops = [node for node in every_node(graph_def) if node.op in LOOPS]
    bodies = {node.attr["body"].func.name for node in loops}
    bodies = {name for name in bodies if not _is_counted(functions[name].signature)}
    if not bodies:
        return graph_def
    conditions = {node.attr["cond"].func.name for node in loops if node.attr["body"].func.name in bodies}
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    for owner in (None, *copy.library.function):
        nodes = copy.node if owner is None else owner.node_def
        for loop in [each for each in nodes if each.op in LOOPS and each.attr["body"].func.name in bodies]:
            nodes.extend(_counted(loop, nodes, owner))
    for each in copy.library.function:
        if each.signature.name in bodies | conditions:
            _add_arguments(each)
        if each.signature.name in bodies:
            _add_results(each)
    return copy


def _is_counted(signature: OpDef) -> bool:
    """Whether a loop carries a counter first. The largest count behind it has the name of what it comes from."""
    return bool(signature.input_arg) and _COUNTER in signature.input_arg[0].name


def _counted(loop: NodeDef, nodes: Iterable[NodeDef], owner: FunctionDef | None) -> list[NodeDef]:
    """Lets a loop of a function, or of the graph for None, carry both; returns the constants that it begins with."""
    part = ":output" if owner is not None else ""
    count = len(loop.attr["T"].list.type)
    names = {f"{loop.name}{part}:{number}": f"{loop.name}{part}:{number + 2}" for number in range(count)}
    if owner is None:
        names[loop.name] = f"{loop.name}:2"
        for node in nodes:
            node.input[:] = [names.get(each, each) for each in node.input]
    else:
        rename(owner, names)
    first = [_constant(f"{loop.name}/{_COUNTER}", 0), _constant(f"{loop.name}/{_MAXIMUM}", _ENDLESS)]
    loop.input[:] = [*(f"{each.name}{part}:0" if part else each.name for each in first), *loop.input]
    loop.attr["T"].list.type[:] = [_INTEGER, _INTEGER, *loop.attr["T"].list.type]
    for name in ("output_shapes", "_output_shapes"):
        if name in loop.attr and loop.attr[name].list.shape:
            _put_first(loop.attr[name])
    return first


def _put_first(shapes: AttrValue) -> None:
    """Puts the shapes of two numbers before others."""
    others = list(shapes.list.shape)
    scalar = tf.TensorShape([]).as_proto()
    del shapes.list.shape[:]
    shapes.list.shape.extend([scalar, scalar, *others])


def _constant(name: str, value: int) -> NodeDef:
    node: NodeDef = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = _INTEGER
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    node.attr["_output_shapes"].list.shape.add()
    return node


def _add_arguments(function: FunctionDef) -> None:
    """Puts both before the arguments of the body, or of the condition, of a loop."""
    signature = function.signature
    others, attributes = list(signature.input_arg), dict(function.arg_attr.items())
    kept = {number: each.SerializeToString() for number, each in attributes.items()}
    del signature.input_arg[:]
    for name in (_COUNTER, _MAXIMUM):
        signature.input_arg.add(name=name, type=_INTEGER)
    signature.input_arg.extend(others)
    function.arg_attr.clear()
    for number in range(2):
        function.arg_attr[number].attr["_output_shapes"].list.shape.add()
    for number, content in kept.items():
        function.arg_attr[number + 2].ParseFromString(content)


def _add_results(function: FunctionDef) -> None:
    """Lets the body of a loop return the next counter and the same largest count, before its own results."""
    one = _constant("counter_step", 1)
    add: NodeDef = tf.compat.v1.NodeDef(name="next_counter", op="AddV2", input=[_COUNTER, f"{one.name}:output:0"])
    same: NodeDef = tf.compat.v1.NodeDef(name="same_maximum", op="Identity", input=[_MAXIMUM])
    for node in (add, same):
        node.attr["T"].type = _INTEGER
        node.attr["_output_shapes"].list.shape.add()
    function.node_def.extend([one, add, same])
    others = list(function.signature.output_arg)
    del function.signature.output_arg[:]
    for node, part in ((add, "z"), (same, "output")):
        function.signature.output_arg.add(name=f"{node.name}_result", type=_INTEGER)
        function.ret[f"{node.name}_result"] = f"{node.name}:{part}:0"
    function.signature.output_arg.extend(others)
