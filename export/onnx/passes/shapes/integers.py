"""Symbolic values of the integers of a graph that are sizes."""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.passes.shapes.symbolic import multiply

# A size is an int or a text; see `symbolic`.
Sizes: TypeAlias = list[Any]
INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_OPERATORS: dict[str, Callable[[int, int], int]] = {"Add": operator.add, "Sub": operator.sub, "Max": max, "Min": min}
_LONGEST = 8


def sizes_of(value: ir.Value | None) -> Sizes | None:
    """Returns the shape of a value as a list of ints and texts, or None if its rank is unknown."""
    if value is None or value.shape is None:
        return None
    return [size if isinstance(size, int) else size.value for size in value.shape]


def known_sizes(value: ir.Value | None) -> Sizes:
    """Returns the shape of a value of known rank.

    Raises:
        ValueError: the rank is unknown.
    """
    sizes = sizes_of(value)
    if sizes is None:
        raise ValueError(f"the rank of {value} is not known")
    return sizes


def shapes_of(values: Iterable[ir.Value | None], rank: int | None = None) -> list[Sizes] | None:
    """Returns the shapes of values, or None if a rank is unknown or is not `rank`."""
    shapes = [sizes_of(value) for value in values]
    known = [each for each in shapes if each is not None and rank in (None, len(each))]
    return known if len(known) == len(shapes) else None


def constant(value: ir.Value | None) -> np.ndarray | None:
    """Returns a small constant as an array, or None."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size > 2**20 else tensor.numpy()


class Integers:
    """Shape inference of operators that compute integers, a method each, named after the operator.

    A method returns the sizes of the first output of a node, or None if they are unknown.
    """

    sources: dict[str, tuple[ir.Value, int]]  # Name of a size -> (graph input, axis).
    _fresh: Iterator[str]  # New names.
    _numbers: dict[ir.Value, Any]  # Value -> the sizes in an integer vector (list) or scalar.
    _results: dict[tuple[str | int, ...], str]  # (operator, size, size) -> the name of the result.

    def _elementwise(self, node: ir.Node) -> Sizes | None:
        raise NotImplementedError

    def numbers(self, value: ir.Value | None) -> Any:
        """Returns the sizes in an integer vector (list) or scalar, or None."""
        if value in self._numbers:
            return self._numbers[value]
        array = constant(value)
        if array is None or array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _LONGEST:
            return None
        return [int(each) for each in array] if array.ndim else int(array)

    def held(self, value: ir.Value) -> Any:
        """Returns the sizes in a computed integer vector (list) or scalar, or None."""
        return self._numbers.get(value)

    def _named(self, value):
        """Names for the integers of a short unknown vector; the same names for the same vector."""
        sizes = sizes_of(value)
        if value.dtype not in INTEGERS or sizes is None or len(sizes) != 1 or sizes[0] not in range(_LONGEST):
            return None
        return self._numbers.setdefault(value, [next(self._fresh) for _ in range(sizes[0])])

    def _hold(self, node, held):
        if held is not None:
            self._numbers[node.outputs[0]] = held
            return [len(held)] if isinstance(held, list) else []
        return None

    def _shape(self, node):
        sizes = sizes_of(node.inputs[0])
        start, end = (node.attributes.get_int(name, default) for name, default in (("start", 0), ("end", None)))
        return self._hold(node, None if sizes is None else sizes[start:end])

    def _cast(self, node):
        held = self.numbers(node.inputs[0])
        if held is not None:
            self._hold(node, held)
        return sizes_of(node.inputs[0])

    def _identity(self, node):
        return self._cast(node)

    def _computed(self, node):
        held = [self.numbers(value) for value in node.inputs]
        if len(held) == 2 and None not in held:
            self._hold(node, self._pairwise(node.op_type, *held))
        return self._elementwise(node)

    _add = _sub = _mul = _max = _min = _div = _computed

    def _equal(self, node):
        """A size of an input is not negative: TensorFlow's slices use -1 for the rest of an axis."""
        rows = [self.numbers(value) for value in node.inputs]
        rows = rows if constant(node.inputs[0]) is not None else rows[::-1]
        are_lists = all(isinstance(row, list) and row for row in rows)
        if are_lists and all(size == -1 for size in rows[0]) and all(map(self._is_no_negative, rows[1])):
            self._numbers[node.outputs[0]] = [0] * max(map(len, rows))
        return self._elementwise(node)

    def _is_no_negative(self, size):
        return size in self.sources or (isinstance(size, int) and size >= 0)

    def _pairwise(self, kind, first, second):
        if not isinstance(first, list) and not isinstance(second, list):
            return self._result(kind, first, second)
        length = max(len(each) if isinstance(each, list) else 1 for each in (first, second))
        rows = [each if isinstance(each, list) else [each] for each in (first, second)]
        rows = [row * length if len(row) == 1 else row for row in rows]
        return [self._result(kind, a, b) for a, b in zip(*rows, strict=True)]

    def _result(self, kind: str, first: int | str, second: int | str) -> int | str:
        """The result of an operator on two sizes; the same name for the same operator and sizes."""
        if kind == "Mul":
            return multiply(first, second)
        if isinstance(first, int) and isinstance(second, int) and kind in _OPERATORS:
            return _OPERATORS[kind](first, second)
        if (kind in ("Add", "Sub") and second == 0) or (kind in ("Max", "Min") and first == second):
            return first
        if kind == "Add" and first == 0:
            return second
        pair: tuple[int | str, ...]
        pair = (first, second) if kind in ("Sub", "Div") else tuple(sorted((first, second), key=str))
        if (kind, *pair) not in self._results:
            self._results[kind, *pair] = next(self._fresh)
        return self._results[kind, *pair]

    def _reduceprod(self, node):
        held = self.numbers(node.inputs[0])
        if not isinstance(held, list):
            return None
        product = multiply(*held)
        return self._hold(node, [product] if node.attributes.get_int("keepdims", 1) else product)

    def _range(self, node):
        start, step = (constant(node.inputs[index]) for index in (0, 2))
        limit = self.numbers(node.inputs[1])
        return (
            [limit]
            if start is not None and step is not None and start == 0 and step == 1 and limit is not None
            else [None]
        )
