"""The movement of the outputs of one graph by noise, and by the error of float32; see `rounding`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_type
from keras_transformer.export.operations.lowering import lowered
from keras_transformer.export.operations.operation import SAVED_MODEL
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.verification.comparison import FACTOR, block_maximum
from keras_transformer.export.verification.coverage import Branches, mark
from keras_transformer.export.verification.double_precision import outputs_in_double
from keras_transformer.export.verification.graph_execution import GraphExecution, Observe, Operation
from keras_transformer.export.verification.noisy_graph import NoisyGraph
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

# Draws of the noise; the largest movement counts. Further draws count for integers where the first ones do not explain a
# difference: one that is next to a jump moves in half of them. Their noise is as much wider as floats may differ by.
DRAWS, _FURTHER = 4, 20
_ULP = 2.0**-23
_FLOAT32 = tf.float32.as_datatype_enum
_SUMS = ("Mean", "Sum")
# Share of the terms of a sum, without zeros, that are equal to the one before, in a sum of one number.
_EQUAL = 0.5


class Movement:
    """How far rounding moves the outputs of a graph, from what the same graph computes: another graph is no rounding.

    Args:
        graph: `TracedGraph`.
        weights: dict of the name of a node to its tensor: all that are no inputs.
        of_summands: bool. Whether there is noise on the operands of every sum of products, and further draws of integers.
    """

    def __init__(self, graph: TracedGraph, weights: Mapping[str, object], of_summands: bool = False) -> None:
        graph = lowered(graph, SAVED_MODEL, lambda op, node: node, is_outlined=True)  # What every processor computes.
        self._graph, self._weights = graph, dict(weights)
        self._execution = GraphExecution(graph.outlined)
        inputs = (*graph.inputs, *weights)
        rounds_operands = _rounds_summands if of_summands else _rounds_operands
        self._noisy = NoisyGraph(graph.outlined, inputs, graph.outputs.values(), _rounds, rounds_operands)
        self._further = _FURTHER if of_summands else 0
        self.branches = Branches()

    def outputs(self, inputs: Mapping[str, np.ndarray], observe: Observe | None = None) -> dict[str, np.ndarray]:
        """The outputs, as the model computes them.

        Args:
            inputs: dict of input name to array.
            observe: as of `GraphExecution`.
        """
        tensors = {name: tf.convert_to_tensor(inputs[name]) for name in self._graph.inputs}
        for each in tensors.values():
            mark(each)
        with full_precision():
            results = self._execution(tensors | self._weights, list(self._graph.outputs.values()), observe)
            return {name: each.numpy() for name, each in zip(self._graph.outputs, results, strict=True)}

    def run(
        self, inputs: Mapping[str, np.ndarray], units: dict[tuple[str, str], float] | None = None
    ) -> dict[str, np.ndarray]:
        """The outputs, with the branches that are taken.

        Args:
            inputs: dict of input name to array.
            units: dict that receives the half width of the noise of each operation, or None.
        """

        def observe(operation: Operation, operands: Sequence[Tensor], result: Tensor) -> None:
            self.branches.observe(operation, operands, result)
            if units is not None:
                _add_unit(units, operation, operands, result)

        return self.outputs(inputs, observe)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = {name: tf.convert_to_tensor(inputs[name]) for name in self._graph.inputs} | self._weights
        found: dict[str, np.ndarray] = {}
        with full_precision():
            units: dict[tuple[str, str], float] = {}
            outputs = self.run(inputs, units)
            has_integers = any(each.dtype.kind != "f" for each in outputs.values())
            for number in range(DRAWS + has_integers * self._further):
                widths = units if number < DRAWS else {key: FACTOR * each for key, each in units.items()}
                results = list(self._noisy(list(tensors.values()), widths))
                for (name, output), result in zip(outputs.items(), results, strict=True):
                    if number >= DRAWS and output.dtype.kind == "f":
                        continue
                    moved = _moved(result.numpy(), output)
                    found[name] = np.maximum(found[name], moved) if name in found else moved
        return found

    def error(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """How far the outputs are from those in float64; nothing where an operation cannot be computed so."""
        exact = outputs_in_double(self._graph, {name: inputs[name] for name in self._graph.inputs} | self._weights)
        pairs = zip(self.outputs(inputs).items(), exact or (), strict=False)
        return {name: _moved(found, output) for (name, output), found in pairs}

    def close(self) -> None:
        self._noisy.close()


def _rounds(operation: Any) -> bool:
    """Whether an operation, a `NodeDef`, rounds its result to float32."""
    found = OPERATIONS.get(operation.op)
    is_rounded = found is not None and (found.rounds or found.rounds_coordinates)
    return is_rounded and result_type(operation.op, operation.attr) == _FLOAT32


def _rounds_operands(operation: NodeDef) -> bool:
    """Whether an operation, a `NodeDef`, is exact for operands that are rounded."""
    found = OPERATIONS.get(operation.op)
    return found is not None and found.rounds_operands


def _rounds_summands(operation: NodeDef) -> bool:
    """The same, where sums of products count too."""
    found = OPERATIONS.get(operation.op)
    is_sum = found is not None and found.sum_length is not None and not found.rounds_coordinates
    return is_sum or _rounds_operands(operation)


def _add_unit(units: dict[tuple[str, str], float], operation: Operation, inputs: Sequence[Any], result: Any) -> None:
    """Adds the half width of the noise of an operation, the largest of those of its calls."""
    found = OPERATIONS.get(operation.kind)
    if found is not None and (found.rounds or found.rounds_operands or found.rounds_coordinates):
        key = operation.function, operation.name
        terms = sum_length(operation, inputs, result) / 8
        unit = _ULP * max(1.0, terms if _is_of_equal_terms(operation, inputs) else math.sqrt(terms))
        units[key] = max(unit, units.get(key, 0.0))


def _is_of_equal_terms(operation: Operation, inputs: Sequence[tf.Tensor]) -> bool:
    """Whether a sum is of one number over and over, as behind an image of one color: all partial sums round one way."""
    if operation.kind not in _SUMS or inputs[0].dtype != tf.float32:
        return False
    terms, axes = inputs[0].numpy(), np.ravel(inputs[1].numpy())
    if not axes.size or terms.shape[axes[-1]] < 2:
        return False
    size = terms.shape[axes[-1]]
    former, later = (np.take(terms, range(start, start + size - 1), axes[-1]) for start in (0, 1))
    return bool(np.sum((former == later) & (later != 0)) > _EQUAL * np.sum(later != 0))


def sum_length(operation: Operation, inputs: Sequence[Any], result: Any) -> float:
    """The length of the sums, or of the products of many factors, of an operation; 1 where there are none.

    Args:
        operation: `Operation`.
        inputs: its tensors.
        result: its first result.
    """
    found = OPERATIONS.get(operation.kind)
    if found is None or found.sum_length is None:
        return 1.0
    return found.sum_length(operation.attributes, inputs, result)


def _moved(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How far each block of an output moves, or each integer."""
    moved = _difference(result, expected)
    return block_maximum(moved) if expected.dtype.kind == "f" else moved


def _difference(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Differences of finite floats; 1 where an integer or the finiteness of a float differs."""
    if result.shape != expected.shape:  # The number of generated tokens, say.
        return np.full(expected.shape, np.inf, "float32")
    if expected.dtype.kind != "f":
        return (result != expected).astype("float32")
    with np.errstate(invalid="ignore"):
        difference = np.abs(result.astype("float64") - expected)
    difference = np.where((result == expected) | (np.isnan(result) & np.isnan(expected)), 0.0, difference)
    return np.asarray(np.nan_to_num(difference, nan=np.inf), "float32")
