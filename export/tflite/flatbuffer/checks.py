"""Validation of TFLite files beyond LiteRT's own verifier: faults on which LiteRT would crash."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.flatbuffer.operator_checks import Operation, check_operation
from keras_transformer.export.tflite.flatbuffer.signatures import called_graphs, operator_kinds
from keras_transformer.export.tflite.tree import schema
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import Operator, SubGraph, Tensor

# Number of required inputs; further ones may be absent (-1). Ops not listed here require all inputs.
_REQUIRED = {"FULLY_CONNECTED": 2, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "TRANSPOSE_CONV": 3, "CONV_3D": 2}
_REQUIRED |= {"CONV_3D_TRANSPOSE": 3, "SVDF": 0, "LSTM": 0, "UNIDIRECTIONAL_SEQUENCE_LSTM": 0}
_REQUIRED |= {"BIDIRECTIONAL_SEQUENCE_LSTM": 0, "CUSTOM": 0}


def check_flatbuffer(path: Path) -> None:
    """Checks that ops refer to existing tensors and graphs, that no graph calls itself, that all data is in the file, and
    that no op has numbers on which LiteRT crashes: see `operator_checks`.

    The file must have been opened by an interpreter, so that its flatbuffer is well formed.

    Args:
        path: path of the `.tflite` file.

    Raises:
        ValueError: names the op and the graph, or the buffer.
    """
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # Closed with its last reference.
    _Checker(memoryview(content)).run()


class _Checker:
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._model = schema().Model.GetRootAs(view, 0)
        self._kinds = operator_kinds(self._model)
        self._calls: dict[int, set[int]] = {}

    def run(self) -> None:
        self._check_data()
        for number in range(self._model.SubgraphsLength()):
            graph = self._model.Subgraphs(number)
            tensors = graph.TensorsLength()
            self._check_indices(f"graph {number}", graph.InputsAsNumpy(), tensors)
            self._check_indices(f"graph {number}", graph.OutputsAsNumpy(), tensors)
            self._calls[number] = set()
            for position in range(tensors):
                self._check_tensor(f"tensor {position} of graph {number}", graph.Tensors(position))
            for position in range(graph.OperatorsLength()):
                self._check_op(number, position, graph.Operators(position), graph)
        self._check_calls()

    def _check_data(self):
        """Refuses data outside the file, whose end LiteRT computes in 64 bits without their overflow."""
        if self._model.ExternalBuffersLength() or self._model.ExternalBufferGroupsLength():
            raise ValueError("it has data in other files")
        for number in range(self._model.BuffersLength()):
            buffer = self._model.Buffers(number)
            if buffer.Offset() + buffer.Size() > len(self._view):
                raise ValueError(f"buffer {number} is outside the file")

    def _check_tensor(self, where, tensor: Tensor):
        if tensor.Buffer() >= max(self._model.BuffersLength(), 1):
            raise ValueError(f"{where} has buffer {tensor.Buffer()} of {self._model.BuffersLength()}")
        if tensor.Sparsity() is not None:
            raise ValueError(f"{where} is sparse, which no export is")

    def _check_op(self, number, position, op: Operator, graph: SubGraph):
        tensors = graph.TensorsLength()
        if op.OpcodeIndex() >= len(self._kinds):
            raise ValueError(f"op {position} of graph {number} has no code")
        name = self._kinds[op.OpcodeIndex()]
        where = f"op {position} ({name}) of graph {number}"
        inputs = np.atleast_1d(op.InputsAsNumpy()) if op.InputsLength() else np.empty(0, int)
        required = _REQUIRED.get(name, len(inputs))
        self._check_indices(where, inputs[:required], tensors)
        self._check_indices(where, inputs[required:], tensors, least=-1)
        self._check_indices(where, op.OutputsAsNumpy(), tensors)
        if op.LargeCustomOptionsOffset() + op.LargeCustomOptionsSize() > len(self._view):
            raise ValueError(f"{where} has options outside the file")
        wrong = check_operation(name, Operation(op, graph, self._model, self._view))
        if wrong is not None:
            raise ValueError(f"{where} {wrong}")
        self._calls[number].update(called_graphs(name, op))

    def _check_indices(self, where, indices, count, least=0):
        for index in np.atleast_1d(indices).tolist():  # A vector that is absent reads as 0.
            if not least <= index < max(count, 1):
                raise ValueError(f"{where} names tensor {index} of {count}")

    def _check_calls(self):
        """Removes graphs that call only removed ones; the remaining ones call themselves."""
        for number, called in self._calls.items():
            missing = called - self._calls.keys()
            if missing:
                raise ValueError(f"graph {number} calls graph {min(missing)}, which does not exist")
        open_calls = dict(self._calls)
        while done := [number for number, called in open_calls.items() if not called & open_calls.keys()]:
            for number in done:
                del open_calls[number]
        if open_calls:
            raise ValueError(f"graph {min(open_calls)} calls itself")
