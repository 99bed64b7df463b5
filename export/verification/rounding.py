"""The rounding of a model: how far its outputs move when every operation rounds its result differently.

Each result of a float32 operation that rounds is multiplied by `1 + d`, with `d` drawn uniformly from one unit in the last
place, or from as many units as a sum of its length rounds by, and the outputs are compared with those of the reference. This
is Monte Carlo arithmetic. No file can be expected to be closer to the model than another order of its own sums, so the
tolerance of a comparison follows from it. Results that are whole numbers stay as they are: masks, counts and one-hot rows
are exact in every runtime.

A factorization and a Fourier transform are backward stable: what they compute is exact for operands that are a few units
away. The noise is on their operands, whole numbers included, so that results of an ill-conditioned matrix move as far as in
any runtime.

An image that is resized is read at coordinates, which each runtime rounds in its way: its pixels move by a share of their
difference from those beside them.

A sum that cancels is rounded as its summands are, and a remainder may jump by its divisor: there is noise on their operands
too, other than on whole numbers.

In a sum of `n` numbers of random signs the `k`-th partial sum is `sqrt(k / n)` of the result, and so is its rounding.
Together they are `sqrt(n / 2)` roundings of the result, as much as noise of `sqrt(n / 8)` units. Runtimes differ by that
much: some add one number after another, others in blocks.

References: Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002, 1997;
Higham, "The Accuracy of Floating Point Summation", SIAM J. Sci. Comput. 14(4), 1993; Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd edition, SIAM, 2002, section 1.5.
Deviation: noise of one unit instead of a half on each side, and none on exact results that are whole numbers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_type
from keras_transformer.export.operations.table import OPERATIONS
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.verification.comparison import block_maximum, scale_of
from keras_transformer.export.verification.coverage import Branches, mark
from keras_transformer.export.verification.dependence import inputs_without_effect
from keras_transformer.export.verification.double_precision import outputs_in_double
from keras_transformer.export.verification.graph_execution import GraphExecution, Observe, Operation
from keras_transformer.export.verification.noisy_graph import NoisyGraph
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec, Probe
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.graph.traced_graph import TracedGraph

# Draws of the noise; the largest movement counts.
DRAWS = 4
_ULP = 2.0**-23
_FLOAT32 = tf.float32.as_datatype_enum
_SUMS = ("Mean", "Sum")
# Share of the terms of a sum, without zeros, that are equal to the one before, in a sum of one number.
_EQUAL = 0.5


def measure_rounding(traced: TracedModule, spec: ExportSpec, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Fills in the `rounding` of every probe: the largest movement of each block of each output.

    That of a further probe is an estimate. Where a comparison needs more, the `measure` of a probe measures it, and runs the
    graph in float64, where all operations can: the error of float32 is one more draw. An integer that another rounding
    changes, such as a token chosen between two equal logits, has the movement 1.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from; its probes have their outputs.
        is_stopped: whether to return before all is measured; called for each probe.
    """
    for name, (kept, further) in _by_graph(spec).items():
        with contextlib.closing(_movement(traced, name)) as measure:
            for probe in kept:
                if is_stopped():
                    return
                probe.rounding = measure(probe.inputs)
                probe.measure = functools.partial(_with_error, traced, name, probe.inputs, probe.rounding)
            for probe in further:
                if not is_stopped() and not measure.branches.is_complete:
                    measure.run(probe.inputs)
            signature, carried = spec.signatures[name], spec.carried(name)
            signature.coverage = measure.branches.coverage(spec.locate)
            signature.without_effect = inputs_without_effect(traced.graphs[name], kept, measure.outputs, carried)
        for probe in further:
            probe.rounding = _estimate(probe, kept)
            probe.measure = functools.partial(_measured, traced, name, probe.inputs)


def _by_graph(spec: ExportSpec) -> dict[str, tuple[list[Probe], list[Probe]]]:
    """The probes of each signature, kept and further ones, with those of its copies; each once."""
    found: dict[str, tuple[dict[int, Probe], dict[int, Probe]]] = {}
    for name, signature in spec.signatures.items():
        if any(each.dtype == "string" for each in (*signature.inputs, *signature.outputs)):
            continue  # A copy of a signature of tokens, behind a tokenizer.
        general = signature.general if signature.general in spec.signatures else name
        kept, further = found.setdefault(general or name, ({}, {}))
        kept.update({id(probe): probe for probe in signature.probes})
        further.update({id(probe): probe for probe in signature.further})
    return {name: (list(kept.values()), list(further.values())) for name, (kept, further) in found.items()}


def _movement(traced: TracedModule, name: str) -> _Movement:
    graph = traced.graphs[name]
    weights = {label: each.read_value() for label, each in traced.variables(graph).items()}
    return _Movement(graph, weights | graph.captures)


def _measured(traced: TracedModule, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The movement by noise, and the error of float32."""
    with contextlib.closing(_movement(traced, name)) as measure:
        return _larger(measure(inputs), measure.error(inputs))


def _with_error(
    traced: TracedModule, name: str, inputs: Mapping[str, np.ndarray], rounding: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The movement that was measured by noise, and the error of float32."""
    with contextlib.closing(_movement(traced, name)) as measure:
        return _larger(rounding, measure.error(inputs))


def _larger(found: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.maximum(each, others[name]) if name in others else each for name, each in found.items()}


def _estimate(probe: Probe, measured: Sequence[Probe]) -> dict[str, np.ndarray]:
    """The least movement of each output of some probes, as a share of the scale, at the scale of another probe."""
    found: dict[str, np.ndarray] = {}
    for name, expected in probe.outputs.items():
        shares = [each.rounding[name].max(initial=0.0) / scale_of(each.outputs[name]) for each in measured]
        share = min(shares, default=0.0) if expected.dtype.kind == "f" else 0.0
        found[name] = np.full([1] * expected.ndim, share * scale_of(expected), "float32")
    return found


class RoundingInBackground:
    """Measures the rounding of a model beside the caller, from its creation on; a context manager.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from. Without need of its rounding nothing is done.
    """

    def __init__(self, traced: TracedModule, spec: ExportSpec) -> None:
        self._stopped = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future: concurrent.futures.Future[None] | None = None
        if spec.tolerance is None and spec.runs_floats:
            self._future = self._pool.submit(measure_rounding, traced, spec, self._stopped.is_set)

    @property
    def is_pending(self) -> bool:
        """bool: whether the rounding is needed, and was not waited for."""
        return self._future is not None

    def wait(self) -> None:
        """Returns when every probe has its rounding; raises what the measurement raised."""
        if self._future is not None:
            self._future.result()
            self._future = None

    def __enter__(self) -> RoundingInBackground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._pool.shutdown()


class _Movement:
    """How far rounding moves the outputs of a graph, from what the same graph computes: another graph is no rounding.

    Args:
        graph: `TracedGraph`.
        weights: dict of the name of a node to its tensor: all that are no inputs.
    """

    def __init__(self, graph: TracedGraph, weights: Mapping[str, object]) -> None:
        self._graph, self._weights = graph, dict(weights)
        self._execution = GraphExecution(graph.outlined)
        inputs = (*graph.inputs, *weights)
        self._noisy = NoisyGraph(graph.outlined, inputs, graph.outputs.values(), _rounds, _rounds_operands)
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
            for _ in range(DRAWS):
                results = list(self._noisy(list(tensors.values()), units))
                for (name, output), result in zip(outputs.items(), results, strict=True):
                    moved = _movement_of(result.numpy(), output)
                    found[name] = np.maximum(found[name], moved) if name in found else moved
        return found

    def error(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """How far the outputs are from those in float64; nothing where an operation cannot be computed so."""
        exact = outputs_in_double(self._graph, {name: inputs[name] for name in self._graph.inputs} | self._weights)
        pairs = zip(self.outputs(inputs).items(), exact or (), strict=False)
        return {name: _movement_of(found, output) for (name, output), found in pairs}

    def close(self) -> None:
        self._noisy.close()


def _rounds(operation: Any) -> bool:
    """Whether an operation, a `NodeDef`, rounds its result to float32."""
    found = OPERATIONS.get(operation.op)
    is_rounded = found is not None and (found.rounds or found.rounds_coordinates)
    return is_rounded and result_type(operation.op, operation.attr) == _FLOAT32


def _rounds_operands(operation: Any) -> bool:
    """Whether an operation, a `NodeDef`, is exact for operands that are rounded."""
    found = OPERATIONS.get(operation.op)
    return found is not None and found.rounds_operands


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


def _movement_of(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
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
