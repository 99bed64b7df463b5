"""A graph as a function, made of its message: TensorFlow need not hold it in memory for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from keras_transformer.export.graph.operation_results import result_part

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_pb2 import TensorProto


class GraphFunction:
    """Makes a `FunctionDef` of a `GraphDef`.

    Args:
        graph_def: `GraphDef`. The results of the function are those of identities, as `trace` makes them.
        inputs: names of the placeholders that become arguments.
        constants: dict of the name of a placeholder to the `TensorProto` that takes its place.

    Attributes:
        arguments: dict of the name of a placeholder to the name of its argument.
    """

    def __init__(
        self, graph_def: GraphDef, inputs: Iterable[str], constants: Mapping[str, TensorProto] | None = None
    ) -> None:
        self._graph_def, self._constants = graph_def, constants or {}
        self._nodes = {node.name: node for node in graph_def.node}
        self.arguments = {node: f"input_{number}" for number, node in enumerate(inputs)}

    def fill(self, function: FunctionDef, name: str, outputs: Iterable[str]) -> None:
        """Fills an empty `FunctionDef`.

        Args:
            function: `FunctionDef`.
            name: its name.
            outputs: tensors, `"node:index"`, in the order of the results.
        """
        function.signature.name = name
        for number, (node, argument) in enumerate(self.arguments.items()):
            function.signature.input_arg.add(name=argument, type=self._nodes[node].attr["dtype"].type)
            shapes = function.arg_attr[number].attr["_output_shapes"].list.shape
            shapes.add().CopyFrom(self._nodes[node].attr["shape"].shape)
        for node in self._graph_def.node:
            if node.name not in self.arguments:
                self._add_node(function, node)
        for number, tensor in enumerate(outputs):
            node = self._nodes[tensor.split(":")[0]]
            function.signature.output_arg.add(name=f"output_{number}", type=node.attr["T"].type)
            function.ret[f"output_{number}"] = self._reference(tensor)

    def _add_node(self, function: FunctionDef, node: NodeDef) -> None:
        added = function.node_def.add()
        if node.name in self._constants:
            value = self._constants[node.name]
            added.name, added.op = node.name, "Const"
            added.attr["value"].tensor.CopyFrom(value)
            added.attr["dtype"].type = value.dtype
            return
        added.CopyFrom(node)
        added.input[:] = [self._reference(each) for each in node.input if each[1:] not in self.arguments]

    def _reference(self, source: str) -> str:
        """A tensor of the graph as a function names it."""
        name, _, number = source.partition(":")
        if name.startswith("^"):
            return name
        if name in self.arguments:
            return self.arguments[name]
        if name in self._constants:
            return f"{name}:output:0"
        node = self._nodes[name]
        return f"{name}:{result_part(node.op, node.attr, int(number or 0))}"
