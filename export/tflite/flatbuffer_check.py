"""Validation of TFLite files beyond LiteRT's own verifier: faults on which LiteRT would crash."""

import mmap
from typing import Any

import numpy as np

from keras_transformer.export.tflite.calls import called_graphs, operator_kinds
from keras_transformer.export.tflite.tree import schema
from keras_transformer.utils.types import Path

# Number of required inputs; further ones may be absent (-1). Ops not listed here require all inputs.
_REQUIRED = {"FULLY_CONNECTED": 2, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "TRANSPOSE_CONV": 3, "CONV_3D": 2}
_REQUIRED |= {"CONV_3D_TRANSPOSE": 3, "SVDF": 0, "LSTM": 0, "UNIDIRECTIONAL_SEQUENCE_LSTM": 0}
_REQUIRED |= {"BIDIRECTIONAL_SEQUENCE_LSTM": 0, "CUSTOM": 0}


def check_flatbuffer(path: Path) -> None:
    """Checks that ops refer to existing tensors and graphs, and that no graph calls itself.

    The file must have been opened by an interpreter, so that its flatbuffer is well formed.

    Args:
        path: path of the `.tflite` file.

    Raises:
        ValueError: names the op and the graph.
    """
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # Closed with its last reference.
    _Checker(memoryview(content)).run()


class _Checker:
    def __init__(self, view: memoryview) -> None:
        self._model = schema().Model.GetRootAs(view, 0)
        self._kinds = operator_kinds(self._model)
        self._calls: dict[Any, Any] = {}

    def run(self) -> None:
        for number in range(self._model.SubgraphsLength()):
            graph = self._model.Subgraphs(number)
            tensors = graph.TensorsLength()
            self._check_indices(f"graph {number}", graph.InputsAsNumpy(), tensors)
            self._check_indices(f"graph {number}", graph.OutputsAsNumpy(), tensors)
            self._calls[number] = set()
            for position in range(graph.OperatorsLength()):
                self._check_op(number, position, graph.Operators(position), tensors)
        self._check_calls()

    def _check_op(self, number, position, op: Any, tensors):
        if op.OpcodeIndex() >= len(self._kinds):
            raise ValueError(f"op {position} of graph {number} has no code")
        name = self._kinds[op.OpcodeIndex()]
        where = f"op {position} ({name}) of graph {number}"
        inputs = np.atleast_1d(op.InputsAsNumpy()) if op.InputsLength() else np.empty(0, int)
        required = _REQUIRED.get(name, len(inputs))
        self._check_indices(where, inputs[:required], tensors)
        self._check_indices(where, inputs[required:], tensors, least=-1)
        self._check_indices(where, op.OutputsAsNumpy(), tensors)
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
