"""TFLite files as editable graphs: LiteRT's object tree of a file, and operations on it."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.tflite.tree import schema, size_of


class Graph:
    """One subgraph of a model, with access to its tensors and operators.

    Args:
        model: `ModelT`.
        subgraph: `SubGraphT` of it.
    """

    def __init__(self, model: Any, subgraph: Any) -> None:
        self.model = model
        self.subgraph = subgraph
        self.tensors = subgraph.tensors

    def kind(self, operator: Any) -> str:
        """Returns the name of an operator, such as `"FULLY_CONNECTED"`."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return operator_names()[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def is_constant(self, index: int) -> bool:
        """Whether a tensor has a value; large ones are not read."""
        return index >= 0 and size_of(self.model.buffers[self.tensors[index].buffer]) > 0

    def constant(self, index: int) -> np.ndarray | None:
        """Returns the value of a constant tensor of int32 or float32, or None."""
        tensor = self.tensors[index] if index >= 0 else None
        if tensor is None or not size_of(self.model.buffers[tensor.buffer]):
            return None
        types = {schema().TensorType.INT32: "int32", schema().TensorType.FLOAT32: "float32"}
        if tensor.type not in types:
            return None
        data = np.frombuffer(np.ascontiguousarray(self.model.buffers[tensor.buffer].data), types[tensor.type])
        return data.reshape(shape_of(tensor))

    def add_tensor(
        self, name: str, kind: str, shape: Sequence[int | None], buffer: int = 0, quantization: Any = None
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

    def add_constant(self, name: str, kind: str, array: np.ndarray, quantization: Any = None) -> int:
        """Adds a constant tensor; returns its index."""
        return self.add_tensor(name, kind, array.shape, add_buffer(self.model, array), quantization)

    def insert(
        self, position: int, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None
    ) -> None:
        """Inserts an operator before the one at `position`; see `operator`."""
        self.subgraph.operators.insert(position, self.operator(kind, inputs, outputs, options))

    def operator(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None) -> Any:
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


# Versions from which these operators support their inputs here; older runtimes report them.
_VERSIONS = {"DEQUANTIZE": 5, "EMBEDDING_LOOKUP": 4, "QUANTIZE": 1}


def graphs(model: Any) -> list[Graph]:
    """Returns a `Graph` for each subgraph."""
    return [Graph(model, subgraph) for subgraph in model.subgraphs]


def add_buffer(model: Any, data: Any) -> int:
    """Adds a buffer with the values of an array, or with data that becomes one when it is read; returns its index."""
    buffer = schema().BufferT()
    is_array = isinstance(data, np.ndarray)
    buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), "uint8") if is_array else data
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Returns the shape of a tensor, with dynamic sizes as 1."""
    return tuple(map(int, tensor.shape)) if tensor.shape is not None else ()


def signature_of(tensor: Any) -> tuple[int | None, ...]:
    """Returns the shape of a tensor, with dynamic sizes as None."""
    sizes = tensor.shapeSignature if tensor.shapeSignature is not None and len(tensor.shapeSignature) else tensor.shape
    return tuple(None if size < 0 else int(size) for size in ([] if sizes is None else sizes))


@functools.cache
def operator_names() -> dict[int, str]:
    """Returns a dict of operator code to name."""
    return {number: name for name, number in vars(schema().BuiltinOperator).items() if name.isupper()}
