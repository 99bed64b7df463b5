"""What the graphs of ONNX files compute from their constants alone: the weights of products and tables, dequantized.

The names that the quantizer gives to codes and scales do not matter, only how the graph reads them.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.weights import Dequantized, codes
from keras_transformer.export.onnx.graph import all_graphs, attributes_of, name_of
from keras_transformer.export.onnx.weights.files import read
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of

# An entry of the metadata of a node that computes several products as one: JSON of the name of each to its channels.
PARTS = "keras_transformer.parts"
COLUMNS = "keras_transformer.Columns"
_FLOATS = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16"}
_INTEGERS = {
    ir.DataType.INT8: "int8",
    ir.DataType.INT16: "int16",
    ir.DataType.INT32: "int32",
    ir.DataType.UINT8: "uint8",
}


class ConstantReader:
    """Reads one ONNX file.

    Args:
        path: `pathlib.Path` of the file; its external data are mapped, not read.

    Attributes:
        graph: `onnx_ir.Graph` of the file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.graph = read(path).graph
        self._named: dict[str, ir.Value] = {}
        self._known: set[ir.Value] = set()
        parts: dict[str, ir.Value] = {}
        for graph in all_graphs(self.graph):
            self._named |= graph.initializers
            self._known |= {*graph.initializers.values()}
            for node in graph:
                self._named |= {name_of(value): value for value in node.outputs if value.name}
                dynamic = 1 if node.op_type in _MAY_BE_DYNAMIC else len(node.inputs)
                if node.op_type in _OPERATORS and self._known.issuperset(node.inputs[:dynamic]):
                    self._known |= {*node.outputs}
                parts |= _parts(node)
        self._named |= parts  # In place of what cuts them apart in the graph.

    def find(self, name: str) -> ir.Value | None:
        """The value of a name, or None."""
        return self._named.get(name)

    def is_weight(self, value: ir.Value | None) -> bool:
        """Whether a value is a stored float array."""
        return value is not None and value.is_initializer() and value.dtype == ir.DataType.FLOAT

    def root(self, value: ir.Value) -> ir.Value:
        """The stored array that a constant is made of."""
        node = value.producer()
        while node is not None and value in self._known and node.inputs[0] is not None:
            value = node.inputs[0]
            node = value.producer()
        return value

    def fingerprint(self, value: ir.Value | None, depth: int = 6) -> Hashable:
        """What a tensor is computed from, for files that share constants: equal for equal results.

        Args:
            value: the tensor.
            depth: operators to go back from a tensor that depends on inputs.
        """
        if value is not None and value.is_initializer():
            return _identity(value.const_value)
        node = None if value is None else value.producer()
        if node is None or (value not in self._known and node.op_type not in _FOLLOWED):
            return None
        if value not in self._known and depth == 0:
            return object()
        attributes = str(attributes_of(node))
        return node.op_type, attributes, tuple(self.fingerprint(each, depth - 1) for each in node.inputs)

    def value(self, value: ir.Value | None) -> Dequantized | None:
        """A tensor that follows from constants; a lookup of rows gives the whole table. None for other tensors."""
        if value is None or value not in self._known:
            return None
        node = value.producer()
        if node is None:
            return Dequantized(np.asarray(constant_of(value)))
        try:
            return _OPERATORS[node.op_type](self, node)
        except (TypeError, ValueError):  # Tables of different sizes, say, of which rows are added.
            return None

    def array(self, value: ir.Value | None) -> np.ndarray | None:
        """The numbers of `value`."""
        found = self.value(value)
        return None if found is None else found.values


def _parts(node: ir.Node) -> dict[str, ir.Value]:
    """The products that a node computes as one, by name: each a value as of a node that cuts its channels out."""
    found, start = {}, 0
    for name, width in json.loads(node.metadata_props.get(PARTS, "{}")).items():
        cut = ir.node(COLUMNS, node.outputs[:1], {"bounds": [start, start + width]})
        found[name], start = cut.outputs[0], start + width
    return found


def _identity(tensor: Any) -> Hashable:
    """What is equal for equal stored arrays."""
    if isinstance(tensor, ir.ExternalTensor):
        return tensor.location, tensor.offset, tuple(tensor.shape)
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest()


def _cast(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    found, to = reader.value(node.inputs[0]), attributes_of(node)["to"]
    if found is None or to in _INTEGERS:
        return found and found.map(lambda array: array.astype(_INTEGERS[to]))
    if to not in _FLOATS:
        return None
    if found.values.dtype.kind in "iu":
        return codes(found.values, found.highest)
    is_half = found.is_half or found.values.dtype == np.float16
    return Dequantized(found.values.astype(_FLOATS[to]), found.step, is_half, found.ends)


def _layout(
    change: Callable[..., Callable[[np.ndarray], np.ndarray]],
) -> Callable[[ConstantReader, ir.Node], Dequantized | None]:
    """An operator that moves numbers; `change` makes a function on arrays of its further inputs and attributes."""

    def evaluate(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
        found = reader.value(node.inputs[0])
        return found and found.map(change(*map(reader.array, node.inputs[1:]), **attributes_of(node)))

    return evaluate


def _reshape(shape: np.ndarray | None, **_: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A shape that depends on inputs, such as that of the indices of a lookup, changes nothing here."""
    return lambda array: array if shape is None else array.reshape(shape)


def _slice(
    starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        cuts = [slice(None)] * array.ndim
        for number, axis in enumerate(range(len(starts)) if axes is None else axes):
            cuts[axis] = slice(starts[number], ends[number], None if steps is None else steps[number])
        return array[tuple(cuts)]

    return change


def _concat(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    parts = [part for part in map(reader.value, node.inputs) if part is not None and part.step is None]
    if len(parts) < len(node.inputs):
        return None
    arrays = [part.values for part in parts]
    return Dequantized(np.concatenate(arrays, attributes_of(node)["axis"]), highest=parts[0].highest)


def _nibble(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    found, other = (reader.array(each) for each in node.inputs)
    if found is None or other is None or found.dtype != np.uint8:
        return None
    if node.op_type == "BitwiseAnd":
        return Dequantized(found & other, highest=int(np.max(other)))
    return Dequantized(found >> other, highest=255 >> int(np.max(other)))


def _arithmetic(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    left, right = (reader.value(each) for each in node.inputs)
    if left is None or right is None:
        return None
    if left.step is None and right.step is not None and node.op_type in ("Mul", "Add"):
        left, right = right, left
    if node.op_type == "Mul":
        return left.scaled(right.values)
    return left.shifted(right.values if node.op_type == "Add" else -right.values)


def _gather(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    if attributes_of(node).get("axis", 0) != 0 or reader.value(node.inputs[1]) is not None:
        return None
    return reader.value(node.inputs[0])


def _dequantize(reader: ConstantReader, node: ir.Node) -> Dequantized | None:
    numbers, scale, *zero = map(reader.array, node.inputs)
    if numbers is None or scale is None:
        return None
    shape = [1] * numbers.ndim
    if scale.ndim:
        shape[attributes_of(node).get("axis", 1)] = -1
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
        COLUMNS,
    ]
)
# Operators of which only the first input must be constant: the indices of a lookup, and the shape of its result.
_MAY_BE_DYNAMIC = ("Gather", "Reshape")
_OPERATORS: dict[str, Callable[[ConstantReader, ir.Node], Dequantized | None]] = {
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
