"""A SavedModel made of the messages of traced graphs, for TensorFlow's converter.

`tf.saved_model.save` needs every graph in memory again, and takes longer for a deep model than the conversion. This one is
of the older kind, which the converter reads too: one graph that calls a function for each signature.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export.spec.operation_results import result_part
from keras_transformer.export.spec.traced_graph import TracedGraph, with_own_functions

_OLDER_KIND = 1


def write_source(graphs: Mapping[str, TracedGraph], constants: Mapping[str, Any], path: pathlib.Path) -> None:
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
        self._name, self._graph, self._constants = name, graph, constants
        self._message = with_own_functions(graph.graph_def, name)
        self._nodes = {node.name: node for node in self._message.node}
        inputs = [*graph.inputs, *(each for each in graph.weights if each not in constants)]
        self._arguments = {node: f"input_{number}" for number, node in enumerate(inputs)}

    def add(self, part: Any) -> None:
        """Adds the signature to a `MetaGraphDef`."""
        part.graph_def.library.function.extend(self._message.library.function)
        function = part.graph_def.library.function.add()
        self._fill(function)
        call = part.graph_def.node.add(name=f"{self._name}/call", op="PartitionedCall")
        call.attr["f"].func.name = function.signature.name
        signature = part.signature_def[self._name]
        for node, argument in zip(self._arguments, function.signature.input_arg, strict=True):
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

    def _fill(self, function: Any) -> None:
        function.signature.name = f"signature_{self._name}"
        for number, (node, argument) in enumerate(self._arguments.items()):
            function.signature.input_arg.add(name=argument, type=self._nodes[node].attr["dtype"].type)
            shapes = function.arg_attr[number].attr["_output_shapes"].list.shape
            shapes.add().CopyFrom(self._nodes[node].attr["shape"].shape)
        for node in self._message.node:
            if node.name not in self._arguments:
                self._add_node(function, node)
        for number, tensor in enumerate(self._graph.outputs.values()):
            node = self._nodes[tensor.split(":")[0]]  # An identity: see `trace`.
            function.signature.output_arg.add(name=f"output_{number}", type=node.attr["T"].type)
            function.ret[f"output_{number}"] = self._reference(tensor)

    def _add_node(self, function: Any, node: Any) -> None:
        added = function.node_def.add()
        if node.name in self._constants:
            value = self._constants[node.name]
            added.name, added.op = node.name, "Const"
            added.attr["value"].tensor.CopyFrom(value)
            added.attr["dtype"].type = value.dtype
            return
        added.CopyFrom(node)
        added.input[:] = [self._reference(each) for each in node.input if each[1:] not in self._arguments]

    def _reference(self, source: str) -> str:
        """A tensor of the graph as a function names it."""
        name, _, number = source.partition(":")
        if name.startswith("^"):
            return name
        if name in self._arguments:
            return self._arguments[name]
        if name in self._constants:
            return f"{name}:output:0"
        node = self._nodes[name]
        return f"{name}:{result_part(node.op, node.attr, int(number or 0))}"
