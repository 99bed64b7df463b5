"""A SavedModel made of the messages of traced graphs, for TensorFlow's converter.

`tf.saved_model.save` needs every graph in memory again, and takes longer for a deep model than the conversion. This one is
of the older kind, which the converter reads too: one graph that calls a function for each signature.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export.graph.function import GraphFunction
from keras_transformer.export.graph.traced_graph import TracedGraph, with_own_functions

if TYPE_CHECKING:
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

_OLDER_KIND = 1


def write_source(graphs: Mapping[str, TracedGraph], constants: Mapping[str, object], path: pathlib.Path) -> None:
    """Writes a SavedModel without variables.

    Args:
        graphs: dict of signature name to `TracedGraph`, without captures.
        constants: dict of the name of a weight to the `TensorProto` that takes its place; the other weights become inputs.
        path: folder to write.
    """
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=_OLDER_KIND)
    part = saved.meta_graphs.add()
    part.meta_info_def.tags.append(tf.saved_model.SERVING)
    for name, graph in graphs.items():
        part.graph_def.versions.CopyFrom(graph.graph_def.versions)
        _Signature(name, graph, constants).add(part)
    path.mkdir()
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())


class _Signature:
    """One signature as a function, and as nodes that call it."""

    def __init__(self, name: str, graph: TracedGraph, constants: Mapping[str, Any]) -> None:
        self._name, self._graph = name, graph
        self._message = with_own_functions(graph.graph_def, name)
        self._nodes = {node.name: node for node in self._message.node}
        inputs = [*graph.inputs, *(each for each in graph.weights if each not in constants)]
        self._function = GraphFunction(self._message, inputs, constants)

    def add(self, part: MetaGraphDef) -> None:
        """Adds the signature to a `MetaGraphDef`."""
        part.graph_def.library.function.extend(self._message.library.function)
        function = part.graph_def.library.function.add()
        self._function.fill(function, f"signature_{self._name}", self._graph.outputs.values())
        call = part.graph_def.node.add(name=f"{self._name}/call", op="PartitionedCall")
        call.attr["f"].func.name = function.signature.name
        signature = part.signature_def[self._name]
        for node, argument in zip(self._function.arguments, function.signature.input_arg, strict=True):
            placeholder = part.graph_def.node.add(name=f"{self._name}/{node}", op="Placeholder")
            placeholder.attr["dtype"].type = argument.type
            placeholder.attr["shape"].CopyFrom(self._nodes[node].attr["shape"])
            call.input.append(placeholder.name)
            call.attr["Tin"].list.type.append(argument.type)
            tensor = signature.inputs[node]
            tensor.name, tensor.dtype = f"{placeholder.name}:0", argument.type
            tensor.tensor_shape.CopyFrom(placeholder.attr["shape"].shape)
        for number, (key, result) in enumerate(zip(self._graph.outputs, function.signature.output_arg, strict=True)):
            call.attr["Tout"].list.type.append(result.type)
            tensor = signature.outputs[key]
            tensor.name, tensor.dtype = f"{call.name}:{number}", result.type
            tensor.tensor_shape.unknown_rank = True
