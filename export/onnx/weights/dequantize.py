"""What the graphs of ONNX files compute from their constants alone: the weights of products and tables, dequantized.

The names that the quantizer gives to codes and scales do not matter, only how the graph reads them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.graph import all_graphs
from keras_transformer.export.verification.quantized_weight import Dequantized, codes

_FLOATS = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16"}
_INTEGERS = {
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.UINT8: "uint8",
}


class ConstantReader:
    """Reads one ONNX file.

    Args:
        path: `pathlib.Path` of the file; its external data are mapped, not read.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.model = onnx.load(str(path), load_external_data=False)
        self._folder = path.parent
        self._tensors: dict[str, Any] = {}
        self.producers: dict[str, Any] = {}
        self._known: set[str] = set()
        for graph in all_graphs(self.model.graph):
            self._tensors |= {each.name: each for each in graph.initializer}
            self._known |= {each.name for each in graph.initializer}
            for node in graph.node:
                self.producers |= {name: node for name in node.output if name}
                dynamic = 1 if node.op_type in _MAY_BE_DYNAMIC else len(node.input)
                if node.op_type in _OPERATORS and self._known.issuperset(node.input[:dynamic]):
                    self._known |= {*node.output}

    def is_weight(self, name: str) -> bool:
        """Whether a name is that of a stored float array."""
        return name in self._tensors and self._tensors[name].data_type == TensorProto.FLOAT

    def root(self, name: str) -> str:
        """The stored array that a constant is made of."""
        while name not in self._tensors and name in self._known:
            name = self.producers[name].input[0]
        return name

    def fingerprint(self, name: str, depth: int = 6) -> Any:
        """What a tensor is computed from, for files that share constants: equal for equal results.

        Args:
            name: name of the tensor.
            depth: operators to go back from a tensor that depends on inputs.
        """
        if name in self._tensors:
            tensor = self._tensors[name]
            external = tuple((each.key, each.value) for each in tensor.external_data if each.key != "checksum")
            return (external, tuple(tensor.dims)) if external else tensor.SerializeToString()
        node = self.producers.get(name)
        if node is None or (name not in self._known and node.op_type not in _FOLLOWED):
            return None
        if name not in self._known and depth == 0:
            return object()
        attributes = tuple(each.SerializeToString() for each in node.attribute)
        return node.op_type, attributes, tuple(self.fingerprint(each, depth - 1) for each in node.input)

    def attributes(self, node: Any) -> dict[str, Any]:
        """The attributes of a node."""
        return {each.name: helper.get_attribute_value(each) for each in node.attribute}

    def value(self, name: str) -> Dequantized | None:
        """A tensor that follows from constants; a lookup of rows gives the whole table. None for other tensors."""
        if name in self._tensors:
            return Dequantized(self._array(name))
        if name not in self._known:
            return None
        node = self.producers[name]
        try:
            return _OPERATORS[node.op_type](self, node)
        except (TypeError, ValueError):  # Tables of different sizes, say, of which rows are added.
            return None

    def array(self, name: str) -> np.ndarray | None:
        """The numbers of `value`."""
        found = self.value(name) if name else None
        return None if found is None else found.values

    def _array(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        if not tensor.external_data:
            return numpy_helper.to_array(tensor)
        external = {each.key: each.value for each in tensor.external_data}
        dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        path, offset = self._folder / external["location"], int(external.get("offset", 0))
        return (
            np.asarray(np.memmap(path, dtype, "r", offset, shape))
            if tensor.dims
            else numpy_helper.to_array(tensor, str(self._folder))
        )


def _cast(reader: ConstantReader, node: Any) -> Dequantized | None:
    found, to = reader.value(node.input[0]), reader.attributes(node)["to"]
    if found is None or to in _INTEGERS:
        return found and found.map(lambda array: array.astype(_INTEGERS[to]))
    if to not in _FLOATS:
        return None
    if found.values.dtype.kind in "iu":
        return codes(found.values, found.highest)
    is_half = found.is_half or found.values.dtype == np.float16
    return Dequantized(found.values.astype(_FLOATS[to]), found.step, is_half, found.ends)


def _layout(change: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> Callable[[ConstantReader, Any], Any]:
    """An operator that moves numbers; `change` makes a function on arrays of its further inputs and attributes."""

    def evaluate(reader: ConstantReader, node: Any) -> Dequantized | None:
        found = reader.value(node.input[0])
        return found and found.map(change(*map(reader.array, node.input[1:]), **reader.attributes(node)))

    return evaluate


def _reshape(shape: np.ndarray | None, **_: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A shape that depends on inputs, such as that of the indices of a lookup, changes nothing here."""
    return lambda array: array if shape is None else array.reshape(shape)


def _slice(starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        cuts = [slice(None)] * array.ndim
        for number, axis in enumerate(range(len(starts)) if axes is None else axes):
            cuts[axis] = slice(starts[number], ends[number], None if steps is None else steps[number])
        return array[tuple(cuts)]

    return change


def _concat(reader: ConstantReader, node: Any) -> Dequantized | None:
    parts = [part for part in map(reader.value, node.input) if part is not None and part.step is None]
    if len(parts) < len(node.input):
        return None
    arrays = [part.values for part in parts]
    return Dequantized(np.concatenate(arrays, reader.attributes(node)["axis"]), highest=parts[0].highest)


def _nibble(reader: ConstantReader, node: Any) -> Dequantized | None:
    found, other = (reader.array(each) for each in node.input)
    if found is None or other is None or found.dtype != np.uint8:
        return None
    if node.op_type == "BitwiseAnd":
        return Dequantized(found & other, highest=int(np.max(other)))
    return Dequantized(found >> other, highest=255 >> int(np.max(other)))


def _arithmetic(reader: ConstantReader, node: Any) -> Dequantized | None:
    left, right = (reader.value(each) for each in node.input)
    if left is None or right is None:
        return None
    if left.step is None and right.step is not None and node.op_type in ("Mul", "Add"):
        left, right = right, left
    if node.op_type == "Mul":
        return left.scaled(right.values)
    return left.shifted(right.values if node.op_type == "Add" else -right.values)


def _gather(reader: ConstantReader, node: Any) -> Dequantized | None:
    if reader.attributes(node).get("axis", 0) != 0 or reader.value(node.input[1]) is not None:
        return None
    return reader.value(node.input[0])


def _dequantize(reader: ConstantReader, node: Any) -> Dequantized | None:
    numbers, scale, *zero = map(reader.array, node.input)
    if numbers is None or scale is None:
        return None
    shape = [1] * numbers.ndim
    if scale.ndim:
        shape[reader.attributes(node).get("axis", 1)] = -1
    zeros = zero[0].reshape(shape).astype("float32") if zero and zero[0] is not None else np.float32(0)
    return codes(numbers).shifted(-zeros).scaled(scale.reshape(shape))


# Operators on activations by which products of whole numbers are put together.
_FOLLOWED = frozenset(
    [
        "MatMul",
        "Gemm",
        "MatMulNBits",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "Mul",
        "Add",
        "Cast",
        "QuantizeLinear",
        "Div",
    ]
)
# Operators of which only the first input must be constant: the indices of a lookup, and the shape of its result.
_MAY_BE_DYNAMIC = ("Gather", "Reshape")
_OPERATORS: dict[str, Callable[[ConstantReader, Any], Dequantized | None]] = {
    "Cast": _cast,
    "Identity": _layout(lambda: lambda array: array),
    "Reshape": _layout(_reshape),
    "Transpose": _layout(lambda perm=None: lambda array: array.transpose(perm)),
    "Unsqueeze": _layout(lambda axes: lambda array: np.expand_dims(array, tuple(axes))),
    "Expand": _layout(lambda shape: lambda array: array * np.ones(shape, array.dtype)),
    "Slice": _layout(_slice),
    "Concat": _concat,
    "BitwiseAnd": _nibble,
    "BitShift": _nibble,
    "Mul": _arithmetic,
    "Add": _arithmetic,
    "Sub": _arithmetic,
    "Gather": _gather,
    "DequantizeLinear": _dequantize,
}
