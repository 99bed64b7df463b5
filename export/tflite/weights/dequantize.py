"""The constants of TFLite files as the kernels read them, dequantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.weights import Dequantized, codes
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema, shape_of, size_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import BufferT, QuantizationParametersT

_PLAIN = {"FLOAT32": "float32", "FLOAT16": "float16"}
_PLAIN |= {f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
_PACKED = {"INT4": 4, "INT2": 2}


class ConstantReader:
    """Reads one graph of a TFLite file.

    Args:
        graph: `Graph`.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        types = vars(schema().TensorType)
        self._names = {number: name for name, number in types.items() if name in {*_PLAIN, *_PACKED}}
        graph.find_uses()

    def producer(self, index: int) -> tuple[str, list[int]]:
        """The kind of the operator that a tensor is the result of, and its inputs; `("", [])` without any."""
        operator = self.graph.makers.get(index)
        if operator is None:
            return "", []
        return self.graph.kind(operator), list(indices(operator.inputs))

    def width(self, index: int) -> int:
        """The size of the last axis of a tensor."""
        return shape_of(self.graph.tensors[index])[-1]

    def buffers(self, index: int) -> tuple[int, ...]:
        """The buffers of a constant and of its scales, by which equal constants are known."""
        tensor = self.graph.tensors[self.source(index)]
        details = tensor.quantization and tensor.quantization.details
        scales = () if details is None else (int(self.graph.tensors[details.scales].buffer),)
        return (int(tensor.buffer), *scales)

    def source(self, index: int) -> int:
        """The stored constant that a tensor is dequantized from, or itself."""
        kind, inputs = self.producer(index)
        return self.source(inputs[0]) if kind == "DEQUANTIZE" else index

    def is_float(self, index: int) -> bool:
        """Whether a tensor is a stored float constant."""
        return index >= 0 and self._kind(index) == "FLOAT32" and size_of(self._buffer(index)) > 0

    def value(self, index: int) -> Dequantized | None:
        """A constant, or one that is dequantized when the file is loaded; None for other tensors."""
        if index < 0:
            return None
        source = self.source(index)
        name = self._kind(source)
        if name is None or not size_of(self._buffer(source)):
            return None
        numbers = self._numbers(source, name)
        if name in ("FLOAT32", "FLOAT16"):
            return Dequantized(numbers.astype("float32", copy=False), is_half=name == "FLOAT16")
        return self._scaled(numbers, self.graph.tensors[source].quantization)

    def _scaled(self, numbers: np.ndarray, parameters: QuantizationParametersT | None) -> Dequantized | None:
        if parameters is None:
            return None
        if parameters.detailsType == schema().QuantizationDetails.BlockwiseQuantization:
            return self._blocks(numbers, parameters.details)
        if parameters.scale is None or not len(parameters.scale):
            return None
        scale, zero = np.asarray(parameters.scale, "float32"), parameters.zeroPoint
        shape = [1] * numbers.ndim
        if len(scale) > 1:
            shape[parameters.quantizedDimension or 0] = -1
        zeros = np.float32(0) if zero is None else np.asarray(zero, "float32").reshape(shape if len(zero) > 1 else ())
        return codes(numbers).shifted(-zeros).scaled(scale.reshape(shape))

    def _blocks(self, numbers: np.ndarray, details: Any) -> Dequantized | None:
        scales = self.value(int(details.scales))
        if scales is None or details.zeroPoints >= 0:
            return None
        count, width = numbers.shape
        found = codes((numbers + 8).astype("uint8"), 15).shifted(np.float32(-8))
        blocked = found.map(lambda array: array.reshape(count, -1, details.blockSize))
        return blocked.scaled(scales.values.reshape(count, -1, 1)).map(lambda array: array.reshape(count, width))

    def _numbers(self, index: int, name: str) -> np.ndarray:
        tensor, data = self.graph.tensors[index], np.ascontiguousarray(self._buffer(index).data)
        if name in _PLAIN:
            return np.frombuffer(data, _PLAIN[name]).reshape(shape_of(tensor))
        bits, shape = _PACKED[name], shape_of(tensor)
        parts = [data.view("uint8") >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
        unsigned = np.stack(parts, axis=-1).reshape(-1)[: int(np.prod(shape))].astype("int8")
        return (unsigned - ((unsigned >> bits - 1) << bits)).astype("int8").reshape(shape)

    def _kind(self, index: int) -> str | None:
        return self._names.get(self.graph.tensors[index].type)

    def _buffer(self, index: int) -> BufferT:
        return self.graph.model.buffers[self.graph.tensors[index].buffer]
