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
too, other than on whole numbers. Products of matrices and convolutions cancel as well, which shows where a function behind
them has a jump or a pole, such as a tangent. Noise on their operands is measured where a file differs by more than the rest
explains.

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
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.verification.comparison import scale_of
from keras_transformer.export.verification.dependence import inputs_without_effect
from keras_transformer.export.verification.movement import Movement

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec, Probe
    from keras_transformer.export.graph.traced import TracedModule


def measure_rounding(traced: TracedModule, spec: ExportSpec, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Fills in the `rounding` of every probe: the largest movement of each block of each output.

    That of a further probe is an estimate. Where a comparison needs more, the `measure` of a probe measures it, with noise
    on the operands of products too, and runs the graph in float64, where all operations can: the error of float32 is one
    more draw. An integer that another rounding changes, such as a token chosen between two equal logits, has the movement 1.

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
                probe.measure = functools.partial(_measured, traced, name, probe.inputs, probe.rounding)
            for probe in further:
                if not is_stopped() and not measure.branches.is_complete:
                    measure.run(probe.inputs)
                probe.rounding = _estimate(probe, kept)
                probe.measure = functools.partial(_measured, traced, name, probe.inputs, {})
            signature, carried = spec.signatures[name], spec.carried(name)
            signature.coverage = measure.branches.coverage(spec.locate)
            usual = [probe for probe in (*kept, *further) if not probe.region]
            signature.without_effect = inputs_without_effect(traced.graphs[name], usual, measure.outputs, carried)


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


def _movement(traced: TracedModule, name: str, of_summands: bool = False) -> Movement:
    graph = traced.graphs[name]
    weights = {label: each.read_value() for label, each in traced.variables(graph).items()}
    return Movement(graph, weights | graph.captures, of_summands)


def _measured(
    traced: TracedModule, name: str, inputs: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The movement with noise on the operands of products too, the error of float32, or the known one: the largest."""
    with contextlib.closing(_movement(traced, name, of_summands=True)) as measure:
        return _larger(_larger(measure(inputs), measure.error(inputs)), known)


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
