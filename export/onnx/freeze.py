"""The graph of a signature as the converter takes it: without function calls and, if it has captured any, variables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from keras_transformer.export.spec.traced import TracedModule
    from keras_transformer.export.spec.traced_graph import TracedGraph

# Attribute of loops and branches by which TensorFlow's optimizer may take them apart into jumps, which ONNX lacks.
_LOWERED = "_lower_using_switch_merge"


@dataclasses.dataclass(frozen=True)
class FrozenGraph:
    """A graph that TensorFlow has optimized.

    Args:
        graph_def: `GraphDef`.
        inputs: dict of the name of each input, and of each weight that is read, to its tensor.
        outputs: dict of the name of each output to its tensor.
    """

    graph_def: Any
    inputs: dict[str, str]
    outputs: dict[str, str]


def freeze(traced: TracedModule, name: str) -> FrozenGraph:
    """Returns the frozen graph of a signature.

    Args:
        traced: `TracedModule`.
        name: name of the signature.
    """
    graph = traced.graphs[name]
    with tf.device("/cpu:0"):
        return _with_values(traced.function(name), graph) if graph.captures else _without_values(graph)


def _with_values(function: Any, graph: TracedGraph) -> FrozenGraph:
    """With the values of all variables as constants."""
    from tf2onnx import tf_loader

    nodes = {tensor.op.name: tensor.name for tensor in function.inputs}
    inputs = {key: nodes[key] for key in graph.inputs}
    outputs = {key: tensor.name for key, tensor in function.structured_outputs.items()}
    graph_def = tf_loader.from_function(function, list(inputs.values()), list(outputs.values()))
    return FrozenGraph(graph_def, inputs, outputs)


def _without_values(graph: TracedGraph) -> FrozenGraph:
    """With the weights as inputs."""
    from tf2onnx import tf_loader

    inputs = {key: f"{node}:0" for key, node in graph.inputs.items()} | {each: f"{each}:0" for each in graph.weights}
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(graph.graph_def)
    for part in (graph_def.node, *(each.node_def for each in graph_def.library.function)):
        for node in part:
            node.attr.pop(_LOWERED, None)
    with tf.Graph().as_default():  # The optimizer looks up the names of inputs and outputs.
        tf.import_graph_def(graph_def, name="")
        optimized = tf_loader.tf_optimize(list(inputs.values()), list(graph.outputs.values()), graph_def)
    return FrozenGraph(optimized, inputs, graph.outputs)
