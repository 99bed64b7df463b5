"""Editing of one graph, operator by operator, with new operators in place of old ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, shape_of
from keras_transformer.export.tflite.tree import schema, size_of
from keras_transformer.export.tflite.uses import Uses, indices

# Constants up to this number of bytes are computed with; larger ones are weights.
_MOST_BYTES = 2**22
_DTYPES = {"FLOAT32": "float32", "INT32": "int32", "INT64": "int64", "BOOL": "bool", "INT8": "int8", "UINT8": "uint8"}


class Editor:
    """A graph of fixed shapes that is rewritten.

    Args:
        graph: `Graph`.

    Attributes:
        uses: `Uses` of the graph as it was before the pass that is running.
        limits: dict of a tensor of one number to the number that it is below, where that is known.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = Uses(graph)
        self.limits: dict[int, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._new: list[Any] = []

    def apply(self, rule: Callable[[Editor, Any], bool]) -> int:
        """Replaces each operator for which a rule emits others; returns how many.

        Args:
            rule: called with the editor and an operator; returns whether it has emitted operators, of which the last one
                writes the outputs of the old one.
        """
        self.refresh()
        count, kept = 0, []
        for operator in self.graph.subgraph.operators:
            self._new = []
            if rule(self, operator):
                count += 1
                kept += self._new
            else:
                kept.append(operator)
        self.graph.subgraph.operators[:] = kept
        return count

    def refresh(self) -> None:
        """Finds the uses of the graph as it is now."""
        self.uses = Uses(self.graph)

    def kind(self, index: int) -> str | None:
        """Name of the operator that produces a tensor; None for inputs and constants."""
        maker = self.uses.makers.get(index)
        return None if maker is None else self.graph.kind(maker)

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a tensor."""
        return shape_of(self.graph.tensors[index])

    def type(self, index: int) -> str:
        """Name of the type of a tensor, such as `"FLOAT32"`."""
        return type_name(self.graph.tensors[index].type)

    def name(self, index: int) -> str:
        """Name of a tensor."""
        return (self.graph.tensors[index].name or b"").decode()

    def value(self, index: int) -> np.ndarray | None:
        """Value of a constant that is no large weight, or None."""
        tensor = self.graph.tensors[index] if index >= 0 else None
        buffer = None if tensor is None else self.graph.model.buffers[tensor.buffer]
        dtype = None if tensor is None else _DTYPES.get(type_name(tensor.type))
        if buffer is None or dtype is None or not 0 < size_of(buffer) <= _MOST_BYTES:
            return None
        return np.frombuffer(np.ascontiguousarray(buffer.data), dtype).reshape(shape_of(tensor))

    def constant(self, array: np.ndarray, name: str = "constant") -> int:
        """Index of a constant; equal ones are shared."""
        kind = next(key for key, dtype in _DTYPES.items() if dtype == str(array.dtype))
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.graph.add_constant(f"{name}/{len(self._constants)}", kind, array)
        return self._constants[key]

    def emit(
        self,
        kind: str,
        inputs: Sequence[int],
        output: int | tuple[str, Sequence[int]],
        options: Any = None,
        like: int | None = None,
    ) -> int:
        """Emits an operator in place of the current one.

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
            name = f"{prefix}/{kind.lower()}_{len(self.graph.tensors)}"
            output = self.graph.add_tensor(name, output[0], tuple(output[1]))
        self._new.append(self.graph.operator(kind, inputs, (output,), options))
        return output

    def reshape(self, index: int, shape: Sequence[int], output: int | None = None) -> int:
        """Emits a reshape, unless the shape is that of the tensor already."""
        if output is None and tuple(shape) == self.shape(index):
            return index
        options = schema().ReshapeOptionsT()
        options.newShape = np.array(shape, "int32")
        target = self.constant(np.array(shape, "int32"), "shape")
        result = output if output is not None else (self.type(index), tuple(shape))
        return self.emit("RESHAPE", (index, target), result, options, like=index)

    def cast(self, index: int, kind: str, output: int | None = None) -> int:
        """Emits a conversion to another type."""
        options = schema().CastOptionsT()
        options.inDataType, options.outDataType = self.graph.tensors[index].type, getattr(schema().TensorType, kind)
        return self.emit("CAST", (index,), output if output is not None else (kind, self.shape(index)), options, index)

    def keep(self, operator: Any) -> None:
        """Emits the operator itself."""
        self._new.append(operator)


def drop_unread(graph: Graph) -> int:
    """Removes operators whose results nothing reads; returns how many."""
    needed = set(indices(graph.subgraph.outputs))
    kept = []
    for operator in reversed(graph.subgraph.operators):
        if needed.intersection(indices(operator.outputs)):
            kept.append(operator)
            needed.update(indices(operator.inputs))
    count = len(graph.subgraph.operators) - len(kept)
    graph.subgraph.operators[:] = kept[::-1]
    return count


def type_name(number: int) -> str:
    """Name of a tensor type, such as `"FLOAT32"`."""
    return next(name for name, value in vars(schema().TensorType).items() if value == number and name.isupper())
