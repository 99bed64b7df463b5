"""Weights of ONNX graphs, named after their variables; several graphs share one file of weights.

The graphs are traced with their weights as inputs, so that the converter does not touch the values. Then each such input
becomes an initializer, in the graph or as a reference to the shared file, which ONNX Runtime maps into memory.
"""

import functools
import hashlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from keras_transformer.export.onnx.graph import all_graphs, remove_nodes
from keras_transformer.export.spec.lazy_array import AnyArray, LazyArray, mapped

FILE = "model.weights"
_INLINE = 1024
_PAGE, _ALIGNMENT = 4096, 64
# Operators that only move data are applied to weights when the file is written.
_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "Identity": lambda x: x,
    "Reshape": lambda x, shape: x.reshape(_sizes(x, shape)),
    "Squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes)),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}


class WeightsFile:
    """The shared file of weights, written incrementally.

    Args:
        path: `pathlib.Path` of the file.
        name: name by which graphs refer to it; that of `path` when None.
    """

    def __init__(self, path: pathlib.Path, name: str | None = None) -> None:
        self._path, self._name = path, name or path.name
        self._offsets: dict[Any, int] = {}
        self._end = 0

    def initializer(self, name: str, array: AnyArray) -> onnx.TensorProto:
        """Returns a tensor for a graph: inline if small, otherwise a reference to the file, without duplicates."""
        if array.nbytes < _INLINE:
            return inline(name, array)
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        entries = {"location": self._name, "offset": self._offset(array), "length": array.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def stored(self, array: np.ndarray) -> AnyArray:
        """Returns the same array, which is in the file now instead of the memory, unless it is small."""
        if array.nbytes < _INLINE:
            return array
        offset = self._offset(array)
        found = mapped(self._path, offset, array.shape, array.dtype)
        self._offsets[found.key] = offset
        return found

    def _offset(self, array: AnyArray) -> int:
        """Where the file has an array."""
        if isinstance(array, np.ndarray):
            return self._append(np.ascontiguousarray(array))
        if array.key not in self._offsets:  # A graph after another has the same weights.
            self._offsets[array.key] = self._append(np.ascontiguousarray(array))
        return self._offsets[array.key]

    def _append(self, array: np.ndarray) -> int:
        content: Any = array.reshape(-1).view(np.uint8)  # Without a copy.
        digest = hashlib.sha256(content).digest()
        if digest not in self._offsets:
            # Only large tensors are aligned to pages for mapping; small ones would leave gaps.
            unit = _PAGE if array.nbytes >= 8 * _PAGE else _ALIGNMENT
            self._end = -(-self._end // unit) * unit
            with open(self._path, "r+b" if self._path.exists() else "wb") as file:
                file.seek(self._end)
                file.write(content)
            self._offsets[digest] = self._end
            self._end += array.nbytes
        return self._offsets[digest]


def inline(name: str, array: AnyArray) -> onnx.TensorProto:
    """Returns a tensor with inline data."""
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def attach(
    model: onnx.ModelProto, arrays: Mapping[str, AnyArray], make_tensor: Callable[[str, AnyArray], onnx.TensorProto]
) -> None:
    """Adds initializers to a graph.

    Args:
        model: `onnx.ModelProto`, changed in place.
        arrays: dict of name to array.
        make_tensor: function of a name and an array: `inline`, or the `initializer` of a `WeightsFile`.
    """
    model.graph.initializer.extend(make_tensor(name, array) for name, array in arrays.items())


def fold(model: onnx.ModelProto, weights: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Removes the weights from the inputs of a graph, and applies operators to them that only move data.

    Args:
        model: `onnx.ModelProto`, changed in place.
        weights: dict of input name to array; inputs that the graph no longer has are ignored.

    Returns:
        Dict of name to array: the initializers that the graph reads, lazy where the weights are.
    """
    graph = model.graph
    _multiply_by_table(model, weights)
    weights = {value.name: weights[value.name] for value in graph.input if value.name in weights}
    kept = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(kept)
    origins = _fold(graph, weights)
    used = {name for each in all_graphs(graph) for node in each.node for name in node.input}
    return _named_after(origins, graph, {name: array for name, array in weights.items() if name in used})


def _named_after(origins: dict[str, str], graph: onnx.GraphProto, weights: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Names folded weights after their origin, with a number for the second and further ones."""
    names, taken = {}, set(weights) - set(origins)
    for name in weights:
        label, number = origins.get(name, name), 1
        while name in origins and label in taken:
            number += 1
            label = f"{origins[name]}~{number}"
        taken.add(label)
        names[name] = label
    for each in all_graphs(graph):
        for node in each.node:
            for index, name in enumerate(node.input):
                node.input[index] = names.get(name, name)
    return {names[name]: array for name, array in weights.items()}


def _multiply_by_table(model: onnx.ModelProto, weights: dict[str, AnyArray]) -> None:
    """`MatMul(x, Transpose(weight))` of matrices as `Gemm` with `transB`, without a transposed copy of a table."""
    ranks = {}
    for graph in all_graphs(onnx.shape_inference.infer_shapes(model).graph):
        for value in (*graph.value_info, *graph.input):
            if value.type.tensor_type.HasField("shape"):
                ranks[value.name] = len(value.type.tensor_type.shape.dim)
    for graph in all_graphs(model.graph):
        turned = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Transpose" and node.input[0] in weights and weights[node.input[0]].ndim == 2
        }
        for node in graph.node:
            if node.op_type == "MatMul" and node.input[1] in turned and ranks.get(node.input[0]) == 2:
                node.op_type = "Gemm"
                node.input[1] = turned[node.input[1]]
                node.attribute.append(onnx.helper.make_attribute("transB", 1))
    _drop_unread(model.graph)


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Removes unused transposes."""
    read = {name for each in all_graphs(graph) for node in each.node for name in node.input}
    read |= {value.name for each in all_graphs(graph) for value in each.output}
    for each in all_graphs(graph):
        remove_nodes(each, lambda node: node.op_type == "Transpose" and node.output[0] not in read)


def _fold(graph: onnx.GraphProto, weights: dict[str, AnyArray]) -> dict[str, str]:
    """Applies operators that only move data to weights, and adds the results to `weights`.

    Returns:
        Dict of the name of a result to the name of its origin.
    """
    origins: dict[str, str] = {}
    constants = {
        tensor.name: numpy_helper.to_array(tensor)
        for each in all_graphs(graph)
        for tensor in each.initializer
        if tensor.dims == [] or np.prod(tensor.dims) < _INLINE
    }
    counts: dict[str, int] = {}
    for each in all_graphs(graph):
        for name in (name for node in each.node for name in node.input):
            counts[name] = counts.get(name, 0) + 1
    for each in all_graphs(graph):
        outputs = {value.name for value in each.output}
        for node in each.node:
            first = node.input[0] if node.input else None
            if first in weights and set(node.input[1:]) <= constants.keys() and node.output[0] not in outputs:
                folded = _folded(node, weights[first], [constants[name] for name in node.input[1:]], counts[first] == 1)
                if folded is not None:
                    weights[node.output[0]] = folded
                    origins[node.output[0]] = origins.get(first, first)
        remove_nodes(each, lambda node: node.output[0] in origins)
    return origins


def _folded(node: Any, array: AnyArray, arguments: list[np.ndarray], is_alone: bool) -> AnyArray | None:
    change: Callable[[np.ndarray], np.ndarray]
    if node.op_type in _FOLDS and not node.attribute:
        change = functools.partial(_apply, _FOLDS[node.op_type], arguments)
    # A transposed copy in addition to the original would double the file; the runtime transposes it when it loads.
    elif node.op_type == "Transpose" and is_alone:
        change = functools.partial(np.transpose, axes=list(node.attribute[0].ints) if node.attribute else None)
    else:
        return None
    if isinstance(array, LazyArray):
        return array.map(change, (node.op_type, *(str(each.tolist()) for each in arguments), str(node.attribute)))
    return change(array)


def _apply(operator: Callable[..., np.ndarray], arguments: list[np.ndarray], array: np.ndarray) -> np.ndarray:
    return operator(array, *arguments)


def _sizes(array: np.ndarray, shape: np.ndarray) -> list[int]:
    return [array.shape[axis] if size == 0 else int(size) for axis, size in enumerate(shape)]
