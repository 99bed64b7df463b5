"""An ONNX graph of fixed shapes, as the rewrites for accelerators read and change it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from keras_transformer.export.onnx.graph import NodeMaker, add_constant, all_nodes, name_of
from keras_transformer.export.onnx.weights.lazy_tensors import array_of, tensor_of

_INDEX = "cache_index"


class Editor:
    """A graph that is rewritten in place.

    Args:
        model: `onnx_ir.Model`.
        slots: number of the slots of the cache of a decoder, or None.

    Attributes:
        index: the input with the number of the slot that is read next, or None.
    """

    def __init__(self, model: ir.Model, slots: int | None = None) -> None:
        self.model, self.graph, self.slots = model, model.graph, slots
        self.index = next((each for each in model.graph.inputs if each.name == _INDEX), None)
        self._has_bodies = any(node.graph is not model.graph for node in all_nodes(model.graph))
        self._is_inferred = False

    def nodes(self, *operators: str) -> list[ir.Node]:
        """The nodes of some operators; none of a graph with loops or branches, whose bodies read tensors around them."""
        return [] if self._has_bodies else [node for node in self.graph if node.op_type in operators]

    def making(self, node: ir.Node) -> NodeMaker:
        """A `NodeMaker` for the place of a node."""
        return NodeMaker(node, self._store)

    def _store(self, name: str, array: np.ndarray) -> ir.Value:
        return add_constant(self.graph, name, array)

    def make_constant(self, node: ir.Node, array: np.ndarray) -> None:
        """Makes the result of a node, which must not be an output of the graph, a constant."""
        node.outputs[0].replace_all_uses_with(self._store(name_of(node.outputs[0]), array))

    def replace(self, *makers: NodeMaker) -> None:
        """Replaces nodes by those that were made for their places, and removes what is not read any more."""
        if sum(maker.replace() for maker in makers):
            self.clean()

    def clean(self) -> None:
        """Removes what is not read any more, after a change."""
        common.RemoveUnusedNodesPass()(self.model)
        self._is_inferred = False

    def shape(self, value: ir.Value | None) -> tuple[int | None, ...] | None:
        """The shape of a tensor, None for sizes that are not known; None where nothing is."""
        self._infer()
        if value is None or value.shape is None:
            return None
        return tuple(size if isinstance(size, int) else None for size in value.shape)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """The type of a tensor's elements, or None."""
        self._infer()
        return None if value is None else value.dtype

    def _infer(self) -> None:
        if not self._is_inferred:
            common.ShapeInferencePass(check_type=False, strict_mode=False)(self.model)
            self._is_inferred = True

    def maker(self, value: ir.Value | None, op: str) -> ir.Node | None:
        """The node of an operator that computes a tensor and whose result has no other reader, or None."""
        node = None if value is None else value.producer()
        if value is None or node is None or node.op_type != op or value.is_graph_output():
            return None
        return node if len(value.uses()) == 1 else None

    def constants(self) -> Iterator[tuple[ir.Value, np.ndarray]]:
        """The constants that are in memory, with their values: those that are no weights of the model."""
        results = [value for node in self.graph for value in node.outputs if node.op_type == "Constant"]
        for value in [*self.graph.initializers.values(), *results]:
            array = self.value(value)
            if array is not None:
                yield value, array

    def value(self, value: ir.Value | None) -> np.ndarray | None:
        """The value of a constant that is in memory, or None."""
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        array = None if tensor is None else array_of(tensor)
        return array if isinstance(array, np.ndarray) else None

    def set_value(self, value: ir.Value, array: np.ndarray) -> None:
        """Changes the value of a constant."""
        node, tensor = value.producer(), tensor_of(array, value.name)
        if node is None:
            value.const_value = tensor
        else:
            node.attributes.clear()
            node.attributes.add(ir.AttrTensor("value", tensor))
