"""The interpreter of TensorFlow Lite for Microcontrollers, on this computer."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypedDict, TypeVar

import numpy as np

from keras_transformer.export.runtime.libraries import Library
from keras_transformer.export.targets.microcontrollers.operators import node_of
from keras_transformer.export.targets.target import Arrays, Node, RefusedNodeError
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.runtime import IntegerStep
from keras_transformer.export.tflite.tree import read, shape_of
from keras_transformer.utils.captured_stderr import captured_stderr

TFLITE_MICRO = Library("tflite_micro", "tflite-micro")
_FAILED = re.compile(r"Node (?P<kind>\w+) \(number (?P<number>\d+)\) failed to")
_ARENA = r"Arena allocation {part} (\d+) bytes"
# Bytes of an arena are a multiple.
_ALIGNMENT = 16
# Beside twice the tensors, which is enough for any plan.
_OVERHEAD = 2**20
_Result = TypeVar("_Result")


class _Quantization(TypedDict):
    """The scales of a tensor."""

    scales: np.ndarray
    zero_points: np.ndarray


class _Details(TypedDict):
    """What the interpreter says of an input or output."""

    dtype: type[np.generic]
    shape: np.ndarray
    quantization_parameters: _Quantization


class Interpreter(Protocol):
    """The interpreter of tflite-micro."""

    def set_input(self, input_data: np.ndarray, index: int) -> None: ...
    def get_output(self, index: int) -> np.ndarray: ...
    def invoke(self) -> int: ...
    def print_allocations(self) -> None: ...
    def get_input_details(self, index: int) -> _Details: ...
    def get_output_details(self, index: int) -> _Details: ...


def open_interpreter(content: bytes, arena_size: int | None = None) -> Interpreter:
    """An interpreter of a file, whose tensors are planned.

    Args:
        content: bytes of a .tflite file.
        arena_size: int: bytes of its memory; as many as any plan takes when None.

    Raises:
        RefusedNodeError: names the node that has no kernel for its types or options.
        RuntimeError: the file does not run for another reason.
    """
    runtime = importlib.import_module("tflite_micro.python.tflite_micro.runtime")
    size = _largest_arena(content) if arena_size is None else arena_size
    opened: Interpreter = _said(lambda: runtime.Interpreter.from_bytes(content, arena_size=size), content)
    return opened


class MicroRuntime:
    """A signature of a file in the interpreter of tflite-micro: arrays by name in, arrays by name out.

    Inputs and outputs of integers are floats here, as in `load`.

    Args:
        content: bytes of a .tflite file of one signature.

    Raises:
        RefusedNodeError, RuntimeError: see `open_interpreter`.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._interpreter = content, open_interpreter(content)
        self._inputs, self._outputs = _places(content)
        ends = (self._interpreter.get_input_details, self._interpreter.get_output_details)
        self._details = [
            {name: details(place) for name, place in places.items()}
            for details, places in zip(ends, (self._inputs, self._outputs), strict=True)
        ]
        details, _ = self._details
        self._last = self.codes({name: np.zeros(each["shape"], each["dtype"]) for name, each in details.items()})

    def __call__(self, arrays: Arrays) -> dict[str, np.ndarray]:
        self._last = self.codes(arrays)
        _said(lambda: _run(self._interpreter, self._last), self._content)
        found = {name: self._interpreter.get_output(place) for name, place in self._outputs.items()}
        return {name: _numbers(array, self._details[1][name]) for name, array in found.items()}

    def codes(self, arrays: Arrays) -> list[np.ndarray]:
        """The input arrays in the order and the types of the file."""
        order = sorted(self._inputs, key=lambda name: self._inputs[name])
        return [_codes(arrays[name], self._details[0][name]) for name in order]

    @property
    def ends(self) -> tuple[dict[str, IntegerStep], dict[str, IntegerStep]]:
        """How inputs and outputs represent numbers, by name; of scale 0 where they are not quantized."""
        inputs, outputs = ({name: _step(each) for name, each in side.items()} for side in self._details)
        return inputs, outputs

    def arena_bytes(self) -> int:
        """Bytes of the smallest arena in which the file runs the last call.

        Raises:
            RuntimeError: nothing was recorded, or it runs in no arena.
        """
        # While it plans it takes more than it records.
        low, step = self._recorded("total") // _ALIGNMENT - 1, 1
        while not runs_in(self._content, (low + step) * _ALIGNMENT, self._last):
            low, step = low + step, 2 * step
            if low * _ALIGNMENT > _largest_arena(self._content):
                raise RuntimeError(f"it does not run in {low * _ALIGNMENT:,} bytes")
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            is_enough = runs_in(self._content, middle * _ALIGNMENT, self._last)
            low, high = (low, middle) if is_enough else (middle, high)
        return high * _ALIGNMENT

    def persistent_bytes(self) -> int:
        """Bytes of the arena that are not those of tensors: what the interpreter knows of nodes and tensors.

        Raises:
            RuntimeError: nothing was recorded.
        """
        return self._recorded("tail")

    def _recorded(self, part: str) -> int:
        """Bytes of a part of the arena."""
        with captured_stderr() as log:
            self._interpreter.print_allocations()
            match = re.search(_ARENA.format(part=part), log())
        if match is None:
            raise RuntimeError("tflite-micro recorded no allocations")
        return int(match[1])


def _run(interpreter: Interpreter, case: Sequence[np.ndarray]) -> None:
    for place, array in enumerate(case):
        interpreter.set_input(array, place)
    interpreter.invoke()


def _said(action: Callable[[], _Result], content: bytes) -> _Result:
    """Calls a function of the interpreter; an error has what it said on stderr."""
    with captured_stderr() as log:
        try:
            return action()
        except RuntimeError as error:
            lines = [line.strip() for line in log().splitlines() if line.strip()] or [str(error)]
            match = next(filter(None, map(_FAILED.search, lines)), None)
            if match is None:
                raise RuntimeError(lines[0]) from error
            reason = lines[0] if lines[0] != match.string else "its kernel fails"
            raise RefusedNodeError(_failed(content, match["kind"], int(match["number"]), reason)) from error


def _failed(content: bytes, kind: str, number: int, reason: str) -> Node:
    """The node of a number, in the first graph in which it is of the kind."""
    for graph in graphs(read(content)):
        operators = graph.subgraph.operators
        if number < len(operators) and graph.kind(operators[number]) == kind:
            return node_of(graph, operators[number], reason)
    raise RuntimeError(f"{kind}: {reason}")


def runs_in(content: bytes, arena_size: int, case: Sequence[np.ndarray]) -> bool:
    """Whether a file runs in an arena; tried in a process of its own, since the interpreter crashes in some.

    Args:
        content: bytes of a .tflite file.
        arena_size: int: bytes of its memory.
        case: list of the input arrays, in the order of the graph and of its types.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    status = 1
    try:
        _run(open_interpreter(content, arena_size), case)
        status = 0
    finally:
        os._exit(status)


def _largest_arena(content: bytes) -> int:
    model = read(content)
    counts = [math.prod(shape_of(each)) for graph in model.subgraphs for each in graph.tensors]
    return 2 * 8 * sum(counts) + _OVERHEAD


def _places(content: bytes) -> tuple[dict[str, int], dict[str, int]]:
    """The places of inputs and outputs in the order of the graph, by their names in the signature."""
    model = read(content)
    (signature,) = model.signatureDefs
    graph = Graph(model, model.subgraphs[signature.subgraphIndex]).subgraph
    sides = ((graph.inputs, signature.inputs), (graph.outputs, signature.outputs))
    inputs, outputs = (
        {each.name.decode(): [int(index) for index in order].index(int(each.tensorIndex)) for each in named}
        for order, named in sides
    )
    return inputs, outputs


def _step(details: _Details) -> IntegerStep:
    parameters = details["quantization_parameters"]
    scales, zeros = parameters["scales"], parameters["zero_points"]
    dtype = np.dtype(details["dtype"])
    return IntegerStep(float(scales[0]), int(zeros[0]), dtype) if len(scales) else IntegerStep(0.0, 0, dtype)


def _codes(array: np.ndarray, details: _Details) -> np.ndarray:
    step = _step(details)
    codes = step.codes(array) if step.scale and step.dtype.kind in "iu" else array
    return np.array(codes, step.dtype, order="C")


def _numbers(array: np.ndarray, details: _Details) -> np.ndarray:
    step = _step(details)
    return step.numbers(array) if step.scale and step.dtype.kind in "iu" else array
