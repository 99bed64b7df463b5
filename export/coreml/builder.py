"""Core ML's operators for a graph that is built: names, types and constants as ONNX has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

# Core ML has no integers of 64 bits. Tables have at most this many rows.
_INT32 = 2**31 - 1
# In 16 bits numbers end at 65504. Larger constants are masks, of which two may be added.
_LARGEST_HALF = 3e4


class Var(Protocol):
    """A variable of a program of coremltools: the result of an operator, or a constant."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def rank(self) -> int: ...
    @property
    def dtype(self) -> type: ...
    @property
    def name(self) -> str: ...
    @property
    def val(self) -> np.ndarray | None: ...
    @property
    def op(self) -> Operation | None: ...


class Operation(Protocol):
    """An operator of a program of coremltools. Its inputs are also attributes, by name."""

    @property
    def op_type(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, Var | list[Var]]: ...
    @property
    def outputs(self) -> Sequence[Var]: ...
    def value_inference(self) -> np.ndarray | None: ...
    def __getattr__(self, name: str) -> Any: ...


class Builder:
    """Emits operators into the Core ML function that is open; results are variables of coremltools.

    Args:
        mil: module `Builder` of coremltools.
        half: bool. Whether the program is computed in 16 bits: larger constants are made smaller.
    """

    def __init__(self, mil: Any, half: bool) -> None:
        self.mil, self._half = mil, half

    def __getattr__(self, name: str) -> Any:
        """An operator of Core ML, called with keyword arguments."""
        return getattr(self.mil, name)

    def constant(self, array: np.ndarray) -> Var:
        """A constant, in a type that Core ML has."""
        return self.mil.const(val=self.fitting(array))

    def fitting(self, array: np.ndarray) -> np.ndarray:
        """An array of float32, int32 or bool with the values of an array."""
        array = np.asarray(array)
        if array.dtype == bool:
            return array
        if array.dtype.kind in "iu":
            return np.clip(array, -_INT32, _INT32).astype("int32")
        found = array.astype("float32")
        return np.clip(found, -_LARGEST_HALF, _LARGEST_HALF) if self._half else found

    def cast(self, x: Var, kind: str) -> Var:
        """`x` as `"fp32"`, `"int32"` or `"bool"`."""
        return x if kind_of(x) == kind else self.mil.cast(x=x, dtype=kind)

    def reshape(self, x: Var, shape: Sequence[int]) -> Var:
        """`x` in another shape; a shape of rank 0 is one of rank 1, which Core ML has instead."""
        shape = [int(each) for each in shape] or [1]
        return x if list(x.shape) == shape else self.mil.reshape(x=x, shape=shape)

    def transpose(self, x: Var, perm: Sequence[int]) -> Var:
        """`x` with its axes in another order."""
        return x if list(perm) == list(range(len(perm))) else self.mil.transpose(x=x, perm=[int(each) for each in perm])

    def broadcast(self, x: Var, shape: Sequence[int]) -> Var:
        """`x`, repeated to a shape."""
        aligned = self.reshape(x, [1] * (len(shape) - len(x.shape)) + list(x.shape))
        counts = [wide if size == 1 else 1 for wide, size in zip(shape, aligned.shape, strict=True)]
        if all(each == 1 for each in counts):
            return aligned
        if kind_of(x) == "bool":
            return self.cast(self.mil.tile(x=self.cast(aligned, "int32"), reps=counts), "bool")
        return self.mil.tile(x=aligned, reps=counts)


def kind_of(x: Var) -> str:
    """`"fp32"`, `"int32"` or `"bool"`: the type of a variable while a program is built."""
    name = str(x.dtype.__name__)
    return "bool" if name == "bool" else "int32" if "int" in name else "fp32"


def value_of(x: Var) -> np.ndarray:
    """The value of a variable that is known.

    Raises:
        NotImplementedError: it is computed when the program runs.
    """
    if x is None or x.val is None:
        raise NotImplementedError("sizes, axes or ranges that are computed")
    return np.asarray(x.val)
