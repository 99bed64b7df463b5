"""Operations of gradients that TFLite lacks, as operations that it has; for signatures that train."""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np

from keras_transformer.export.tflite.constants import BOOL, FLOAT, INT32, add_constant, constant_value
from keras_transformer.export.tflite.function_outputs import rename_output


def without_shared_erfc(function: Any) -> int:
    """Rewrites each `Erfc` that has several readers; returns how many.

    The converter makes a GELU of `x / 2 · erfc(-x / √2)` where nothing else reads the `Erfc`, and its gradient does. As
    `erfc(t) = 2 gelu(x) / x` for `x = -√2 t`, and 1 for x = 0, such a GELU is put in its place.

    Args:
        function: `FunctionDef` of a SavedModel, changed in place.
    """
    readers = collections.Counter(name for node in function.node_def for name in node.input)
    readers.update(function.ret.values())
    found = [node for node in function.node_def if node.op == "Erfc" and readers[f"{node.name}:y:0"] > 1]
    for node in found:
        _GELU(function, node).replace()
    return len(found)


class _GELU:
    """The nodes that take the place of one `Erfc`."""

    def __init__(self, function: Any, node: Any) -> None:
        self._function, self._node, self._name = function, node, node.name

    def replace(self) -> None:
        x = self._binary("Mul", "x", self._node.input[0], self._number("minus_root", -math.sqrt(2)))
        negative = self._function.node_def.add(name=f"{self._name}/negative", op="Neg", input=[x])
        negative.attr["T"].type = FLOAT
        scaled = self._binary("Mul", "scaled", f"{negative.name}:y:0", self._number("half_root", math.sqrt(0.5)))
        erfc = self._function.node_def.add(name=f"{self._name}/erfc", op="Erfc", input=[scaled])
        erfc.attr["T"].type = FLOAT
        half = self._binary("Mul", "half", self._number("one_half", 0.5), x)
        gelu = self._binary("Mul", "gelu", half, f"{erfc.name}:y:0")
        zero = self._number("zero", 0.0)
        is_zero = self._binary("Equal", "is_zero", x, zero)
        # Nothing is divided by 0; where x is 0, the quotient is not used.
        divisor = self._binary("AddV2", "divisor", x, self._cast(is_zero))
        double = self._binary("Mul", "double", gelu, self._number("two", 2.0))
        quotient = self._binary("RealDiv", "quotient", double, divisor)
        self._node.op = "SelectV2"
        self._node.input[:] = [is_zero, self._number("one", 1.0), quotient]
        self._node.attr["T"].type = FLOAT
        rename_output(self._function, f"{self._name}:y:0", f"{self._name}:output:0")

    def _number(self, label: str, value: float) -> str:
        return add_constant(self._function, f"{self._name}/{label}", np.array(value), FLOAT)

    def _cast(self, source: str) -> str:
        node = self._function.node_def.add(name=f"{self._name}/one_at_zero", op="Cast", input=[source])
        node.attr["SrcT"].type, node.attr["DstT"].type = BOOL, FLOAT
        return f"{node.name}:y:0"

    def _binary(self, op: str, label: str, *operands: str) -> str:
        node = self._function.node_def.add(name=f"{self._name}/{label}", op=op, input=operands)
        node.attr["T"].type = FLOAT
        if op == "Equal":
            node.attr["incompatible_shape_error"].b = True
        return f"{node.name}:z:0"


def without_slice_gradients(function: Any) -> int:
    """Rewrites each `StridedSliceGrad` with constant bounds and steps of 1 as a reshape and zeros around it.

    Args:
        function: `FunctionDef` of a SavedModel, changed in place.

    Returns:
        How many.
    """
    nodes = {node.name: node for node in function.node_def}
    count = 0
    for node in [each for each in function.node_def if each.op == "StridedSliceGrad"]:
        values = [constant_value(nodes, name) for name in node.input[:4]]
        bounds = None if any(each is None for each in values) else _bounds(node, *values)
        if bounds is None:
            continue
        shape, starts, stops = bounds
        reshaped = function.node_def.add(name=f"{node.name}/kept", op="Reshape")
        kept = add_constant(function, f"{node.name}/kept_shape", np.array(stops) - starts)
        reshaped.input[:] = [node.input[4], kept]
        reshaped.attr["T"].type, reshaped.attr["Tshape"].type = node.attr["T"].type, INT32
        around = add_constant(
            function, f"{node.name}/zeros_around", np.stack([starts, np.array(shape) - stops], axis=1)
        )
        kind = node.attr["T"].type
        node.op = "Pad"
        node.input[:] = [f"{reshaped.name}:output:0", around]
        node.attr.clear()
        node.attr["T"].type, node.attr["Tpaddings"].type = kind, INT32
        count += 1
    return count


def _bounds(node: Any, shape: Any, begin: Any, end: Any, strides: Any) -> tuple[list, list, list] | None:
    """The shape of the sliced tensor, and the first index and the end of the slice along each axis."""
    if (strides != 1).any():
        return None
    starts, stops = [], []
    for size, position in zip(shape.tolist(), _positions(node, len(shape), len(begin)), strict=True):
        start, stop = 0, size
        if position is not None:
            bit = 1 << position
            start = 0 if node.attr["begin_mask"].i & bit else int(begin[position])
            stop = size if node.attr["end_mask"].i & bit else int(end[position])
            start = start + size if start < 0 else start
            if node.attr["shrink_axis_mask"].i & bit:
                stop = start + 1
        starts.append(min(start, size))
        stops.append(min(stop + size if stop < 0 else stop, size))
    return shape.tolist(), starts, stops


def _positions(node: Any, rank: int, count: int) -> list[int | None]:
    """For each axis of the sliced tensor its position in the bounds, or None where the whole axis is taken.

    New axes have a position and no axis; an ellipsis stands for as many axes as there are left. What axes the gradient has
    makes no difference: it is reshaped.
    """
    added, ellipsis = node.attr["new_axis_mask"].i, node.attr["ellipsis_mask"].i
    given = [each for each in range(count) if not added >> each & 1 and not ellipsis >> each & 1]
    if not ellipsis:
        return [*given, *[None] * (rank - len(given))]
    before = [each for each in given if (1 << each) < ellipsis]
    after = given[len(before) :]
    return [*before, *[None] * (rank - len(given)), *after]
