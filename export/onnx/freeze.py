"""The graph of a signature as the converter takes it: without function calls and, if it has captured any, variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.part import every_node
from keras_transformer.export.graph.traced_graph import LOWERED, TracedGraph, with_numbered_functions

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class FrozenGraph:
    """A graph that TensorFlow has optimized.

    Args:
        graph_def: `GraphDef`.
        inputs: dict of the name of each input, and of each weight that is read, to its tensor.
        outputs: dict of the name of each output to its tensor.
    """

    graph_def: GraphDef
    inputs: dict[str, str]
    outputs: dict[str, str]


def freeze(graph: TracedGraph) -> FrozenGraph:
    """Returns the frozen graph of a signature.

    Args:
        graph: `TracedGraph`.
    """
    with tf.device("/cpu:0"):
        return _with_values(graph) if graph.captures else _without_values(graph)


def _with_values(graph: TracedGraph) -> FrozenGraph:
    """With the values of the variables that are captured as constants, and the weights of the model as inputs."""
    from tf2onnx import tf_loader

    def imported(**tensors: Tensor) -> dict[str, Tensor]:
        return graph.imported(tensors)

    places = {node.name: node.attr for node in graph.graph_def.node if node.op == "Placeholder"}
    arguments = {
        name: tf.TensorSpec(tf.TensorShape(places[name]["shape"].shape), places[name]["dtype"].type, name)
        for name in (*graph.inputs, *graph.weights)
    }
    function: tf.types.experimental.ConcreteFunction = tf.function(imported, autograph=False).get_concrete_function(
        **arguments
    )
    tensors = {tensor.op.name: tensor.name for tensor in function.inputs}
    inputs = {name: tensors[name] for name in arguments}
    outputs = {key: tensor.name for key, tensor in function.structured_outputs.items()}
    graph_def = tf_loader.from_function(function, list(inputs.values()), list(outputs.values()))
    return FrozenGraph(graph_def, inputs, outputs)


def _without_values(graph: TracedGraph) -> FrozenGraph:
    """With the weights as inputs."""
    from tf2onnx import tf_loader

    inputs = {name: f"{name}:0" for name in (*graph.inputs, *graph.weights)}
    graph_def = with_numbered_functions(graph.graph_def)
    for node in every_node(graph_def):
        node.attr.pop(LOWERED, None)  # ONNX lacks jumps.
    weights = _without_memory(graph_def, graph.weights)
    with tf.Graph().as_default():  # The optimizer looks up the names of inputs and outputs.
        tf.import_graph_def(graph_def, name="")
        optimized = tf_loader.tf_optimize(list(inputs.values()), list(graph.outputs.values()), graph_def)
    for node in every_node(optimized):
        # The optimizer changes the order of factors, and keeps the shapes of the former products.
        node.attr.pop("_output_shapes", None)
    for function in optimized.library.function:
        for argument in function.arg_attr.values():  # It does not know those of branches.
            argument.attr.pop("_output_shapes", None)
    kept = [node for node in optimized.node if node.op != "VarHandleOp" and node.name not in weights]
    del optimized.node[:]
    optimized.node.extend([*weights.values(), *kept])
    return FrozenGraph(optimized, inputs, graph.outputs)


def _without_memory(graph_def: GraphDef, names: Sequence[str]) -> dict[str, object]:
    """Makes the placeholders of weights reads of variables, which have no values: TensorFlow's optimizer would allocate a
    tensor for each placeholder.

    Returns:
        Dict of name to the former node.
    """
    wanted, found, handles = set(names), {}, []
    for node in graph_def.node:
        if node.name in wanted:
            found[node.name] = tf.compat.v1.NodeDef()
            found[node.name].CopyFrom(node)
            handles.append(tf.compat.v1.NodeDef(name=f"{node.name}/handle", op="VarHandleOp"))
            for key in ("dtype", "shape"):
                handles[-1].attr[key].CopyFrom(node.attr[key])
            handles[-1].attr["shared_name"].s = node.name.encode()
            node.op = "ReadVariableOp"
            node.input.append(handles[-1].name)
            del node.attr["shape"]
    graph_def.node.extend(handles)
    return found
