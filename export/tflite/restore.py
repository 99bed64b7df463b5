"""Weights in place of the splats of a converted file."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs, schema, shape_of, size_of
from keras_transformer.export.tflite.splats import Splat
from keras_transformer.export.tflite.weight_layouts import FILTER, PRODUCT, ROWS, Steps, apply_steps

# The kind of layout that an input of an operator reads, by operator and position.
_KINDS = {
    ("FULLY_CONNECTED", 1): PRODUCT,
    ("GATHER", 0): ROWS,
    ("EMBEDDING_LOOKUP", 1): ROWS,
    ("CONV_2D", 1): FILTER,
}
# Values that large constants repeat that are no weights.
_PLAIN = (0, 1, -1, np.inf, -np.inf)
_BODIES = ("condSubgraphIndex", "bodySubgraphIndex", "thenSubgraphIndex", "elseSubgraphIndex", "subgraph")


class UnrestorableError(Exception):
    """The converter did something to a splat that cannot be done to the weight that it stands for."""


def restore(model: Any, splats: Sequence[Splat], read: dict[str, list[np.float32]], factors: Sequence[float]) -> None:
    """Puts weights in place of their splats.

    Args:
        model: `ModelT`, changed in place.
        splats: all splats of the SavedModel that it was converted from.
        read: dict of signature name to the values of the splats that it must contain.
        factors: scalars by which the converter may have multiplied weights.

    Raises:
        UnrestorableError: a weight is missing, or has an unknown layout.
    """
    restorer = _Restorer(model, splats, factors)
    found = [restorer.restore(graph) for graph in graphs(model)]
    for signature in model.signatureDefs:
        name, values = signature.signatureKey.decode(), set()
        for index in _reachable(model, signature.subgraphIndex):
            values |= found[index]
        if missing := set(read[name]) - values:
            raise UnrestorableError(f"{len(missing)} weights of signature '{name}' are missing")
    restorer.release()


def _reachable(model: Any, index: int) -> set[int]:
    """The graphs that a graph runs, and itself."""
    found: set[int] = set()
    pending = [index]
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            options = [each.builtinOptions for each in model.subgraphs[index].operators]
            pending.extend(getattr(each, name) for each in options for name in _BODIES if hasattr(each, name))
    return found


class _Restorer:
    def __init__(self, model: Any, splats: Sequence[Splat], factors: Sequence[float]) -> None:
        self._model = model
        self._smallest = min((int(np.prod(splat.variable.shape)) for splat in splats), default=0)
        self._factors = set(factors)
        self._known: dict[Any, tuple[Splat, float] | None] = {splat.value: (splat, 1.0) for splat in splats}
        for factor in factors:
            for splat in splats:
                with np.errstate(over="ignore"):  # An infinity stands for no weight.
                    value = splat.value * np.float32(factor)
                known = self._known.setdefault(value, (splat, factor))
                if known is not None and known[0] is not splat:
                    self._known[value] = None  # Two weights and factors have this product.
        self._splat_of_buffer: dict[int, tuple[Splat, float] | None] = {}
        self._restored: dict[Any, int] = {}

    def restore(self, graph: Graph) -> set[np.float32]:
        """Restores the weights of one graph; returns the values of their splats."""
        found = set()
        kinds = _kinds(graph)
        for index, tensor in enumerate(graph.tensors):
            if tensor.type != schema().TensorType.FLOAT32 or not size_of(self._model.buffers[tensor.buffer]):
                continue
            known = self._splat(tensor.buffer, shape_of(tensor))
            if known is not None and index in kinds:
                tensor.buffer = self._buffer(*known, kinds[index], shape_of(tensor))
                found.add(known[0].value)
        return found

    def _splat(self, buffer: int, shape: tuple[int, ...]) -> tuple[Splat, float] | None:
        """The weight and the factor that a constant stands for, if any."""
        if buffer not in self._splat_of_buffer:
            values = np.frombuffer(np.ascontiguousarray(self._model.buffers[buffer].data), "float32")
            self._splat_of_buffer[buffer] = self._splat_of(values.reshape(shape))
        return self._splat_of_buffer[buffer]

    def _splat_of(self, values: np.ndarray) -> tuple[Splat, float] | None:
        known = self._known.get(values.flat[0])
        is_large = values.size >= self._smallest
        if is_large and known is not None and values.min() == values.max():
            return known
        is_plain = values.flat[0] in _PLAIN or float(values.flat[0]) in self._factors
        if (known is not None and not is_large) or (is_large and not is_plain and _has_equal_rows(values)):
            raise UnrestorableError(f"the converter computed a constant of shape {values.shape} from a weight")
        return None

    def _buffer(self, splat: Splat, factor: float, kinds: set[str | None], shape: tuple[int, ...]) -> int:
        """The index of a buffer with the weight, which all graphs share."""
        layouts = {splat.layouts.get(kind or "") for kind in kinds}
        steps = layouts.pop()
        if layouts or steps is None:
            raise UnrestorableError(f"'{splat.variable.path}' is read by other operators")
        key = splat.value, factor, steps, shape
        if key not in self._restored:
            # An array that repeats one byte has the shape without the memory.
            found = apply_steps(np.broadcast_to(np.int8(0), splat.variable.shape), steps).shape
            if found != shape:
                raise UnrestorableError(f"'{splat.variable.path}' has the shape {shape}, not {found}")
            self._model.buffers.append(schema().BufferT())
            self._model.buffers[-1].data = _Weight(splat, factor, steps)
            self._restored[key] = len(self._model.buffers) - 1
        return self._restored[key]

    def release(self) -> None:
        """Drops the splats, and copies the other constants, so that the converted file can leave the memory."""
        for index, buffer in enumerate(self._model.buffers):
            if self._splat_of_buffer.get(index) is not None:
                buffer.data = None
            elif isinstance(buffer.data, np.ndarray):
                buffer.data = buffer.data.copy()


class _Weight:
    """The content of a buffer: a weight, which is copied only when it is read."""

    def __init__(self, splat: Splat, factor: float, steps: Steps) -> None:
        self._splat = splat
        self._factor = np.float32(factor)
        self._steps = steps

    def __len__(self) -> int:
        return 4 * int(np.prod(self._splat.variable.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = apply_steps(np.asarray(self._splat.variable), self._steps)
        array = np.ascontiguousarray(array if self._factor == 1 else array * self._factor)
        return array.reshape(-1).view("uint8")


def _kinds(graph: Graph) -> dict[int, set[str | None]]:
    """For each tensor that operators read the kinds of layout that they expect, with None for an unknown one."""
    kinds: dict[int, set[str | None]] = collections.defaultdict(set)
    for operator in graph.subgraph.operators:
        for position, index in enumerate([] if operator.inputs is None else operator.inputs):
            kinds[int(index)].add(_KINDS.get((graph.kind(operator), position)))
    return kinds


def _has_equal_rows(values: np.ndarray) -> bool:
    """Whether an array repeats one row or one column, as a product of a splat and a vector does."""
    matrix = values.reshape(-1, values.shape[-1])
    return bool((matrix == matrix[:1]).all() or (matrix == matrix[:, :1]).all())
