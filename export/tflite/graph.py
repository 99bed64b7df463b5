"""The graphs of a TFLite file: LiteRT's object tree of each, with access to it, and edits of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.tree import (
    add_buffer,
    indices,
    operator_names,
    schema,
    shape_of,
    size_of,
    type_names,
)

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, QuantizationParametersT, SubGraphT

# Versions from which these operators support their inputs here; older runtimes report them.
_VERSIONS = {"DEQUANTIZE": 5, "EMBEDDING_LOOKUP": 4, "QUANTIZE": 1}
# Constants up to this number of bytes are computed with; larger ones are weights.
_MOST_BYTES = 2**22
_DTYPES = {"FLOAT32": "float32", "INT32": "int32", "INT64": "int64", "BOOL": "bool", "INT8": "int8", "UINT8": "uint8"}


class Graph:
    """One subgraph of a model, with access to its tensors and operators.

    Args:
        model: `ModelT`.
        subgraph: `SubGraphT` of it.

    Attributes:
        tensors: its tensors, by index.
        makers: dict of a tensor to the operator that produces it, as of the last `find_uses`.
        readers: dict of a tensor to the operators that read it, as of the last `find_uses`.
        ends: the outputs of the graph, as of the last `find_uses`.
        limits: dict of a tensor of one number to the number that it is below, where that is known.
    """

    def __init__(self, model: ModelT, subgraph: SubGraphT) -> None:
        self.model = model
        self.subgraph = subgraph
        self.tensors = subgraph.tensors
        self.makers: dict[int, OperatorT] = {}
        self.readers: dict[int, list[OperatorT]] = {}
        self.ends: set[int] = set()
        self.limits: dict[int, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._emitted: list[OperatorT] = []

    def find_uses(self) -> Graph:
        """Finds the producer and the consumers of each tensor, as they are now; returns the graph."""
        self.makers, self.readers = {}, collections.defaultdict(list)
        for operator in self.subgraph.operators:
            for index in indices(operator.outputs):
                self.makers[index] = operator
            for index in indices(operator.inputs):
                self.readers[index].append(operator)
        self.ends = set(indices(self.subgraph.outputs))
        return self

    def only_reader(self, index: int) -> OperatorT | None:
        """Returns the only consumer of a tensor, or None; an output of the graph has further consumers."""
        readers = self.readers[index]
        return readers[0] if len(readers) == 1 and index not in self.ends else None

    def kind(self, operator: OperatorT) -> str:
        """Returns the name of an operator, such as `"FULLY_CONNECTED"`."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return operator_names()[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def shape(self, index: int) -> tuple[int, ...]:
        """Returns the shape of a tensor, with dynamic sizes as 1."""
        return shape_of(self.tensors[index])

    def type(self, index: int) -> str:
        """Returns the name of the type of a tensor, such as `"FLOAT32"`."""
        return type_names()[self.tensors[index].type]

    def name(self, index: int) -> str:
        """Returns the name of a tensor."""
        return (self.tensors[index].name or b"").decode()

    def is_constant(self, index: int) -> bool:
        """Whether a tensor has a value; large ones are not read."""
        return index >= 0 and size_of(self.model.buffers[self.tensors[index].buffer]) > 0

    def value(self, index: int) -> np.ndarray | None:
        """Returns the value of a constant tensor, or None; packed and half-precision numbers are not read."""
        dtype = _DTYPES.get(self.type(index)) if self.is_constant(index) else None
        if dtype is None:
            return None
        data = np.ascontiguousarray(self.model.buffers[self.tensors[index].buffer].data)
        return np.frombuffer(data, dtype).reshape(self.shape(index))

    def small_value(self, index: int) -> np.ndarray | None:
        """Returns the value of a constant that is no large weight, or None."""
        is_small = index >= 0 and size_of(self.model.buffers[self.tensors[index].buffer]) <= _MOST_BYTES
        return self.value(index) if is_small else None

    def add_tensor(
        self,
        name: str,
        kind: str,
        shape: Sequence[int | None],
        buffer: int = 0,
        quantization: QuantizationParametersT | None = None,
    ) -> int:
        """Adds a tensor; returns its index. A None in the shape is a dynamic size."""
        tensor = schema().TensorT()
        tensor.name = name.encode()
        tensor.type = getattr(schema().TensorType, kind)
        tensor.shape = np.array([size or 1 for size in shape], "int32")
        if None in shape:
            tensor.shapeSignature = np.array([-1 if size is None else size for size in shape], "int32")
        tensor.buffer = buffer
        tensor.quantization = quantization
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_constant(
        self, name: str, kind: str, array: np.ndarray, quantization: QuantizationParametersT | None = None
    ) -> int:
        """Adds a constant tensor; returns its index."""
        return self.add_tensor(name, kind, array.shape, add_buffer(self.model, array), quantization)

    def constant(self, array: np.ndarray, name: str = "constant") -> int:
        """Returns the index of a constant; equal ones that were made here are shared."""
        kind = next(key for key, dtype in _DTYPES.items() if dtype == str(array.dtype))
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.add_constant(f"{name}/{len(self._constants)}", kind, array)
        return self._constants[key]

    def insert(
        self, position: int, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: object = None
    ) -> None:
        """Inserts an operator before the one at `position`; see `operator`."""
        self.subgraph.operators.insert(position, self.operator(kind, inputs, outputs, options))

    def operator(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: object = None) -> OperatorT:
        """Returns a new operator; `options` is an instance of the kind's options class."""
        operator = schema().OperatorT()
        operator.opcodeIndex = self._code(kind)
        operator.inputs = np.array(inputs, "int32")
        operator.outputs = np.array(outputs, "int32")
        if options is not None:
            name = type(options).__name__[:-1]
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(schema().BuiltinOptions, name)
        return operator

    def _code(self, kind: str) -> int:
        number = getattr(schema().BuiltinOperator, kind)
        for index, code in enumerate(self.model.operatorCodes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == number:
                # The inputs used here need these versions.
                code.version = max(code.version, _VERSIONS.get(kind, 1))
                return index
        code = schema().OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
        code.version = _VERSIONS.get(kind, 1)
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def replace_operators(self, rule: Callable[[Graph, OperatorT], bool]) -> int:
        """Replaces each operator for which a rule emits others; returns how many.

        Args:
            rule: called with the graph and an operator; returns whether it has emitted operators, of which the last one
                writes the outputs of the old one.
        """
        self.find_uses()
        count, kept = 0, []
        for operator in self.subgraph.operators:
            self._emitted = []
            if rule(self, operator):
                count += 1
                kept += self._emitted
            else:
                kept.append(operator)
        self.subgraph.operators[:] = kept
        return count

    def emit(
        self,
        kind: str,
        inputs: Sequence[int],
        output: int | tuple[str, Sequence[int]],
        options: object = None,
        like: int | None = None,
    ) -> int:
        """Emits an operator in place of the one that a rule replaces.

        Args:
            kind: name of the operator.
            inputs: indices of tensors.
            output: index of the tensor to write, or type and shape of a new one.
            options: instance of the options class of the operator.
            like: tensor whose name a new one begins with, so that its layer is found.

        Returns:
            Index of the output.
        """
        if isinstance(output, tuple):
            prefix = "" if like is None else self.name(like)
            name = f"{prefix}/{kind.lower()}_{len(self.tensors)}"
            output = self.add_tensor(name, output[0], tuple(output[1]))
        self._emitted.append(self.operator(kind, inputs, (output,), options))
        return output

    def emit_reshape(self, index: int, shape: Sequence[int], output: int | None = None) -> int:
        """Emits a reshape, unless the shape is that of the tensor already."""
        if output is None and tuple(shape) == self.shape(index):
            return index
        options = schema().ReshapeOptionsT()
        options.newShape = np.array(shape, "int32")
        target = self.constant(np.array(shape, "int32"), "shape")
        result = output if output is not None else (self.type(index), tuple(shape))
        return self.emit("RESHAPE", (index, target), result, options, like=index)

    def emit_cast(self, index: int, kind: str, output: int | None = None) -> int:
        """Emits a conversion to another type."""
        options = schema().CastOptionsT()
        options.inDataType, options.outDataType = self.tensors[index].type, getattr(schema().TensorType, kind)
        return self.emit("CAST", (index,), output if output is not None else (kind, self.shape(index)), options, index)

    def emit_operator(self, operator: OperatorT) -> None:
        """Emits an operator that was made or changed by the rule."""
        self._emitted.append(operator)

    def drop_unread(self) -> int:
        """Removes operators whose results nothing reads; returns how many."""
        needed = set(indices(self.subgraph.outputs))
        kept = []
        for operator in reversed(self.subgraph.operators):
            if needed.intersection(indices(operator.outputs)):
                kept.append(operator)
                needed.update(indices(operator.inputs))
        count = len(self.subgraph.operators) - len(kept)
        self.subgraph.operators[:] = kept[::-1]
        return count


def graphs(model: ModelT) -> list[Graph]:
    """Returns a `Graph` for each subgraph."""
    return [Graph(model, subgraph) for subgraph in model.subgraphs]
