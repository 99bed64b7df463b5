"""Checks of single operators of a TFLite file: numbers on which LiteRT divides by zero, or reads outside its memory.

They cover what a file states: options, static shapes and constants. Numbers that a graph computes are known only while it
runs; `load(..., isolated=True)` contains what they may cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.tree import schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import Model, Operator, SubGraph, Tensor

_TYPES = {"INT32": "int32", "INT64": "int64"}
_LARGEST = 2**31
_LARGEST_RADIUS = 2**20


class Operation:
    """One operator with the tensors around it.

    Args:
        operator: `Operator`.
        graph: `SubGraph` of it.
        model: `Model`.
        content: the file, as a buffer.
    """

    def __init__(self, operator: Operator, graph: SubGraph, model: Model, content: memoryview) -> None:
        self._operator, self._graph, self._model, self._content = operator, graph, model, content

    def outputs(self) -> int:
        """The number of outputs."""
        return self._operator.OutputsLength()

    def numbers(self, table: str, *fields: str) -> list[int]:
        """Options by the names of their table and fields. LiteRT takes options of another table for zeros."""
        found = self._operator.BuiltinOptions()
        if found is None or self._operator.BuiltinOptionsType() != getattr(schema().BuiltinOptions, table):
            return [0] * len(fields)
        options = getattr(schema(), table)()
        options.Init(found.Bytes, found.Pos)
        return [getattr(options, field)() for field in fields]

    def shape(self, position: int) -> list[int] | None:
        """The shape of an input; None where it is absent, dynamic or not known."""
        tensor = self._input(position)
        if tensor is None or not tensor.ShapeLength():
            return None
        is_dynamic = tensor.ShapeSignatureLength() and (tensor.ShapeSignatureAsNumpy() < 0).any()
        return None if is_dynamic else tensor.ShapeAsNumpy().tolist()

    def values(self, position: int) -> np.ndarray | None:
        """The integers of a constant input; None where it is no such constant."""
        tensor = self._input(position)
        kinds = {getattr(schema().TensorType, name): kind for name, kind in _TYPES.items()}
        if tensor is None or tensor.Type() not in kinds:
            return None
        buffer = self._model.Buffers(tensor.Buffer())
        data = buffer.DataAsNumpy() if buffer.DataLength() else None
        if buffer.Offset() > 1:
            data = np.frombuffer(self._content[buffer.Offset() : buffer.Offset() + buffer.Size()], "uint8")
        if data is None:
            return None
        size = np.dtype(kinds[tensor.Type()]).itemsize
        return np.frombuffer(data[: data.size // size * size].tobytes(), kinds[tensor.Type()])

    def _input(self, position: int) -> Tensor | None:
        index = self._operator.Inputs(position) if position < self._operator.InputsLength() else -1
        return self._graph.Tensors(index) if index >= 0 else None


def check_operation(name: str, operation: Operation) -> str | None:
    """What is wrong with an operator.

    Args:
        name: name of the operator, such as `"SPLIT"`.
        operation: `Operation`.

    Returns:
        A phrase, or None.
    """
    return _CHECKS[name](operation) if name in _CHECKS else None


def _parts(table: str) -> Callable[[Operation], str | None]:
    def check(operation: Operation) -> str | None:
        (count,) = operation.numbers(table, "NumSplits")
        if count < 1 or count != operation.outputs():
            return f"cuts into {count} parts and has {operation.outputs()} outputs"
        return None

    return check


def _paddings(position: int, blocks: int | None = None) -> Callable[[Operation], str | None]:
    def check(operation: Operation) -> str | None:
        values, shape = operation.values(position), operation.shape(0)
        sizes = None if blocks is None else operation.values(blocks)
        if sizes is not None and (sizes < 1).any():
            return f"has blocks of {sizes.tolist()}"
        if values is None:
            return None
        largest = max(shape or [0])
        pairs = values[: len(values) // 2 * 2].reshape(-1, 2).tolist()
        if any(min(pair) < 0 or sum(pair) + largest >= _LARGEST for pair in pairs):
            return f"pads or crops by {pairs}"
        return None

    return check


def _window(table: str, fields: str, weights: int | None = None) -> Callable[[Operation], str | None]:
    """Of strides, sizes and dilations; `fields` are those of `table` that are at least 1."""

    def check(operation: Operation) -> str | None:
        names = fields.split()
        numbers = dict(zip(names, operation.numbers(table, *names), strict=True))
        for name, number in numbers.items():
            if number < 1:
                return f"has {name} {number}"
        shape = [1] if weights is None else operation.shape(weights) or [1]
        if max(numbers.values()) * max(shape) >= _LARGEST:
            return f"has a window of {max(numbers.values())} times {max(shape)}"
        return None

    return check


def _bias(position: int, weights: int, axis: int) -> Callable[[Operation], str | None]:
    def check(operation: Operation) -> str | None:
        bias, shape = operation.shape(position), operation.shape(weights)
        if bias is None or shape is None or len(shape) <= axis:
            return None
        if math.prod(bias) != shape[axis]:
            return f"has a bias of {math.prod(bias)} for {shape[axis]} channels"
        return None

    return check


def _every(*checks: Callable[[Operation], str | None]) -> Callable[[Operation], str | None]:
    return lambda operation: next(filter(None, (each(operation) for each in checks)), None)


def _remainder(operation: Operation) -> str | None:
    divisors = operation.values(1)
    # The least integer has no quotient by -1: the processor stops the program.
    return "divides by -1" if divisors is not None and (divisors == -1).any() else None


def _radius(operation: Operation) -> str | None:
    (radius,) = operation.numbers("LocalResponseNormalizationOptions", "Radius")
    return None if 0 <= radius <= _LARGEST_RADIUS else f"has radius {radius}"


def _slice(operation: Operation) -> str | None:
    begins, sizes, shape = operation.values(1), operation.values(2), operation.shape(0)
    for axis, begin in enumerate([] if begins is None else begins.tolist()):
        if begin < 0 or (shape is not None and axis < len(shape) and begin > shape[axis]):
            return f"begins at {begin} along axis {axis}"
    for axis, size in enumerate([] if sizes is None else sizes.tolist()):
        begin = int(begins[axis]) if begins is not None and axis < len(begins) else 0
        if size < -1 or (shape is not None and axis < len(shape) and begin + size > shape[axis]):
            return f"takes {size} from {begin} on along axis {axis}"
    return None


def _least(position: int, least: int, what: str) -> Callable[[Operation], str | None]:
    def check(operation: Operation) -> str | None:
        values = operation.values(position)
        return f"has {what} {values.tolist()}" if values is not None and (values < least).any() else None

    return check


_STRIDES = "StrideW StrideH"
_DILATED = f"{_STRIDES} DilationWFactor DilationHFactor"
_POOL = _window("Pool2DOptions", f"{_STRIDES} FilterWidth FilterHeight")
_CONV_3D = _window("Conv3DOptions", f"{_DILATED} StrideD DilationDFactor", 1)
_CHECKS: dict[str, Callable[[Operation], str | None]] = {
    "SPLIT": _parts("SplitOptions"),
    "SPLIT_V": _parts("SplitVOptions"),
    "PAD": _paddings(1),
    "PADV2": _paddings(1),
    "MIRROR_PAD": _paddings(1),
    "SPACE_TO_BATCH_ND": _paddings(2, blocks=1),
    "BATCH_TO_SPACE_ND": _paddings(2, blocks=1),
    "CONV_2D": _every(_window("Conv2DOptions", _DILATED, 1), _bias(2, 1, 0)),
    "DEPTHWISE_CONV_2D": _every(_window("DepthwiseConv2DOptions", _DILATED, 1), _bias(2, 1, 3)),
    "TRANSPOSE_CONV": _every(_window("TransposeConvOptions", _STRIDES), _bias(3, 1, 0)),
    "CONV_3D": _every(_CONV_3D, _bias(2, 1, 4)),
    "CONV_3D_TRANSPOSE": _every(_CONV_3D, _bias(3, 1, 3)),
    "FULLY_CONNECTED": _bias(2, 1, 0),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "FLOOR_MOD": _remainder,
    "LOCAL_RESPONSE_NORMALIZATION": _radius,
    "SLICE": _slice,
    "TOPK_V2": _least(1, 0, "a count of"),
    "RESIZE_BILINEAR": _least(1, 1, "sizes"),
    "RESIZE_NEAREST_NEIGHBOR": _least(1, 1, "sizes"),
}
