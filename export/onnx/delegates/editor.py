"""An ONNX graph with its constants, as the rewrites for accelerators read and change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from keras_transformer.export.onnx.graph import NodeMaker, all_nodes
from keras_transformer.export.onnx.weights.weights_file import inline
from keras_transformer.export.spec.lazy_array import AnyArray

_SMALL = 4096
_INDEX = "cache_index"


class _Type(NamedTuple):
    """What is known of a tensor."""

    shape: tuple[int | None, ...] | None = None
    dtype: int | None = None


class Editor:
    """A graph that is rewritten in place.

    Args:
        model: `ModelProto` without initializers.
        arrays: dict of name to array: its initializers, changed in place.
        slots: number of the slots of the cache of a decoder, or None.

    Attributes:
        index: name of the input with the number of the slot that is read next, or None.
        makers: dict of a tensor to the node that computes it.
        readers: dict of a tensor to the nodes that read it.
    """

    def __init__(self, model: Any, arrays: dict[str, AnyArray], slots: int | None = None) -> None:
        self.graph, self.arrays, self.slots = model.graph, arrays, slots
        self.index = next((each.name for each in model.graph.input if each.name == _INDEX), None)
        self._model = model
        self.refresh()

    def nodes(self, *operators: str) -> list[Any]:
        """The nodes of some operators; none of a graph with loops or branches, whose bodies read tensors around them."""
        if any(count >= len(self.graph.node) for count, _ in enumerate(all_nodes(self.graph))):
            return []
        return [node for node in self.graph.node if node.op_type in operators]

    def making(self, node: Any) -> tuple[NodeMaker, list[Any]]:
        """A `NodeMaker` for the place of a node, and the list that its nodes go to."""

        def store(name: str, array: np.ndarray) -> str:
            self.arrays[name] = array
            return name

        made: list[Any] = []
        return NodeMaker(made, node, store), made

    def refresh(self) -> None:
        """Finds the makers and the readers of tensors again, after a change."""
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.readers: dict[str, list[Any]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self._constants = dict(self.constants())
        self._types: dict[str, _Type] | None = None

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """The shape of a tensor, None for sizes that are not known; None where nothing is."""
        return self._type(name).shape

    def dtype(self, name: str) -> int | None:
        """The type of a tensor's elements, a value of `TensorProto.DataType`; None where it is not known."""
        return self._type(name).dtype

    def _type(self, name: str) -> _Type:
        if self._types is None:
            self._types = self._inferred()
        return self._types.get(name, _Type())

    def maker(self, name: str, op: str) -> Any:
        """The node of an operator that computes a tensor and whose result has no other reader, or None."""
        node = self.makers.get(name)
        is_output = any(each.name == name for each in self.graph.output)
        alone = len(self.readers.get(name, ())) == 1 and not is_output
        return node if node is not None and node.op_type == op and alone else None

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """The names and values of constants that are in memory: those that are no weights of the model."""
        yield from [(name, array) for name, array in self.arrays.items() if isinstance(array, np.ndarray)]
        for node in self.graph.node:
            value = _value(node)
            if value is not None:
                yield node.output[0], numpy_helper.to_array(value.t)

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant, or None."""
        return self._constants.get(name)

    def set_value(self, name: str, array: np.ndarray) -> None:
        """Changes the value of a constant."""
        if name in self.arrays:
            self.arrays[name] = array
            return
        for node in self.graph.node:
            value = _value(node) if name in node.output else None
            if value is not None:
                value.t.CopyFrom(numpy_helper.from_array(array, value.t.name))

    def replace(self, nodes: dict[str, list[Any]]) -> None:
        """Puts nodes in the place of others, and removes what is not read any more.

        Args:
            nodes: dict of the first output of a node to the nodes that take its place.
        """
        if not nodes:
            return
        every = [new for node in self.graph.node for new in nodes.get(node.output[0], [node])]
        needed = {each.name for each in self.graph.output}
        kept = []
        for node in reversed(every):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.append(node)
        del self.graph.node[:]
        self.graph.node.extend(reversed(kept))
        for name in self.arrays.keys() - needed:
            del self.arrays[name]
        self.refresh()

    def _inferred(self) -> dict[str, _Type]:
        skeleton = onnx.ModelProto()
        skeleton.CopyFrom(self._model)
        for name, array in self.arrays.items():
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            small = isinstance(array, np.ndarray) and array.nbytes < _SMALL
            tensor = inline(name, array) if small else onnx.TensorProto(name=name, data_type=dtype, dims=array.shape)
            if not small:
                tensor.data_location = onnx.TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="elsewhere")
            skeleton.graph.initializer.append(tensor)
        graph = onnx.shape_inference.infer_shapes(skeleton, data_prop=True).graph
        types = {
            name: _Type(tuple(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype))
            for name, array in self.arrays.items()
        }
        for value in (*graph.input, *graph.value_info, *graph.output):
            found = value.type.tensor_type
            sizes = [each.dim_value if each.HasField("dim_value") else None for each in found.shape.dim]
            types[value.name] = _Type(tuple(sizes) if found.HasField("shape") else None, found.elem_type or None)
        return types


def _value(node: Any) -> Any:
    """The attribute that holds the value of a constant node, or None."""
    if node.op_type != "Constant":
        return None
    return next((each for each in node.attribute if each.name == "value"), None)
