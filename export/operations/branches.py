"""One of several branches as nested choices of two: neither TFLite nor ONNX has TensorFlow's `Case`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.part import every_node

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_CASES = ("Case", "StatelessCase")
_INDEX = "branch_index"


def with_two_branches(graph_def: GraphDef) -> GraphDef:
    """A copy of a `GraphDef` in which each `Case` is a `StatelessIf`; the same one if it has none."""
    if not any(node.op in _CASES for node in every_node(graph_def)):
        return graph_def
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    functions = {each.signature.name: each for each in graph_def.library.function}
    made: list[FunctionDef] = []
    for nodes, is_function in ((copy.node, False), *((each.node_def, True) for each in copy.library.function)):
        for node in [each for each in nodes if each.op in _CASES]:
            name = f"case_{len(functions) + len(made)}"
            branches = [functions[each.name] for each in node.attr["branches"].list.func]
            own = [_with_index(each, f"{name}_branch_{number}") for number, each in enumerate(branches)]
            others = _others(own, name, node)
            made += own + others
            index, *inputs = node.input
            is_first = _comparison(nodes, f"{node.name}/is_first", index, 0, is_function)
            _choose(node, [is_first, index, *inputs], own[0], [*others, own[-1]][0])
    copy.library.function.extend(made)
    return with_two_branches(copy)  # Branches may be cases too.


def _with_index(function: FunctionDef, name: str) -> FunctionDef:
    """A function under another name, that takes an index before its arguments and does not read it."""
    copy: FunctionDef = tf.compat.v1.GraphDef().library.function.add()
    copy.CopyFrom(function)
    copy.signature.name = name
    del copy.signature.input_arg[:]
    copy.signature.input_arg.add(name=_INDEX, type=tf.int32.as_datatype_enum)
    copy.signature.input_arg.extend(function.signature.input_arg)
    copy.attr.pop("_input_shapes", None)
    copy.arg_attr.clear()
    for position, each in function.arg_attr.items():
        copy.arg_attr[position + 1].CopyFrom(each)
    return copy


def _others(branches: Sequence[FunctionDef], name: str, case: NodeDef) -> list[FunctionDef]:
    """For each branch but the first and the last a function: that branch if the index is its own, else those behind it."""
    found: list[FunctionDef] = []
    others = branches[-1]
    for number in reversed(range(1, len(branches) - 1)):
        function: FunctionDef = tf.compat.v1.GraphDef().library.function.add()
        function.signature.CopyFrom(branches[number].signature)
        function.signature.name = f"{name}_from_{number}"
        for position, each in branches[number].arg_attr.items():
            function.arg_attr[position].CopyFrom(each)
        inputs = [each.name for each in function.signature.input_arg]
        is_own = _comparison(function.node_def, "is_own", _INDEX, number, is_function=True)
        chosen = function.node_def.add(name="chosen")
        chosen.attr["Tin"].CopyFrom(case.attr["Tin"])
        chosen.attr["Tout"].CopyFrom(case.attr["Tout"])
        _choose(chosen, [is_own, *inputs], branches[number], others)
        for position, output in enumerate(function.signature.output_arg):
            function.ret[output.name] = f"chosen:output:{position}"
        others = function
        found.insert(0, function)
    return found


def _comparison(
    nodes: RepeatedCompositeFieldContainer[NodeDef], name: str, index: str, number: int, is_function: bool
) -> str:
    """Adds the operations that tell whether an index is a number, to a graph or a function; returns their result."""
    constant = nodes.add(name=f"{name}/number", op="Const")
    constant.attr["dtype"].type = tf.int32.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
    equal = nodes.add(
        name=name, op="Equal", input=[index, f"{constant.name}:output:0" if is_function else constant.name]
    )
    equal.attr["T"].type = tf.int32.as_datatype_enum
    for each in (constant, equal):
        each.attr["_output_shapes"].list.shape.add()
    return f"{name}:z:0" if is_function else name


def _choose(node: NodeDef, inputs: Sequence[str], branch: FunctionDef, others: FunctionDef) -> None:
    """Makes a `NodeDef` the choice between two functions."""
    types = list(node.attr["Tin"].list.type)
    node.op = "StatelessIf"
    node.input[:] = inputs
    node.attr.pop("branches", None)
    node.attr["Tcond"].type = tf.bool.as_datatype_enum
    node.attr["Tin"].list.type[:] = [tf.int32.as_datatype_enum, *types]
    node.attr["then_branch"].func.name = branch.signature.name
    node.attr["else_branch"].func.name = others.signature.name
