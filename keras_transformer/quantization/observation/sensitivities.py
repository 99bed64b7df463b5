"""What a model loses if one of its weights is rounded: measures of it, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np

from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.methods.clipping import importance
from keras_transformer.quantization.observation.calibration import Batch, calibrate
from keras_transformer.quantization.observation.recording import outputs_of
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.rounding import round_rows
from keras_transformer.quantization.scheme import WeightScheme

Fitting = Mapping[str, Sequence[WeightScheme]]
Errors = dict[tuple[str, WeightScheme], float]
Distance = Callable[[np.ndarray], Callable[[np.ndarray], float]]
# Rows of a weight that tell how the errors of its schemes are related.
_ROWS = 256


def squared_change(expected: np.ndarray) -> Callable[[np.ndarray], float]:
    """Returns the squared change from outputs, relative to their square, as a function of others.

    Example:

    >>> squared_change(np.array([3.0, 4.0]))(np.array([3.0, 4.5]))
    0.01
    """
    total = np.square(expected, dtype="float64").sum()
    return lambda found: float(np.square(found - expected, dtype="float64").sum() / total)


def divergence(expected: np.ndarray) -> Callable[[np.ndarray], float]:
    """Returns the mean Kullback-Leibler divergence, in nats, from the classes that logits `(..., C)` stand for.

    Example:

    >>> found = np.log([[0.25, 0.75]])
    >>> round(divergence(np.array([[0.0, 0.0]]))(found), 4)  # log(0.5 / 0.25) / 2 + log(0.5 / 0.75) / 2
    0.1438
    """
    wanted = _log_softmax(expected)
    shares = np.exp(wanted)
    return lambda found: float((shares * (wanted - _log_softmax(found))).sum(axis=-1, dtype="float64").mean())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))


def by_outputs(
    distance: Distance,
    model: keras.Model,
    kernels: Sequence[Kernel],
    fitting: Fitting,
    batches: Sequence[Batch],
    verbose: bool,
) -> Errors:
    """The distance of the model's outputs from what they were, by weight and scheme.

    Each weight alone is rounded in its smallest scheme, and the model runs once. What other schemes would change grows with
    the squares of their rounding errors.

    Args:
        distance: from the outputs for one batch: `squared_change` or `divergence`; the sum over the outputs counts.
        model: Functional `keras.Model`. It stays as it is.
        kernels: list of `Kernel`.
        fitting: dict of path to the schemes of each.
        batches: those of `as_batches`.
        verbose: bool. Whether each weight writes a line to stderr.
    """

    def outputs() -> Iterator[list[np.ndarray]]:
        return (outputs_of(model, batch) for batch in batches)

    distances, found = [[distance(each) for each in batch] for batch in outputs()], {}
    for number, kernel in enumerate(kernels):
        if verbose:
            print(f"{kernel.path}: {number + 1} of {len(kernels)}", file=sys.stderr, flush=True)
        rows = kernel.rows()
        squares = _rounding_errors(rows, fitting[kernel.path])
        smallest = max(squares, key=lambda scheme: squares[scheme])
        try:
            kernel.assign(round_rows(rows, smallest).values)
            pairs = [pair for each in zip(distances, outputs(), strict=True) for pair in zip(*each, strict=True)]
            loss = sum(distance_to(each) for distance_to, each in pairs) / len(batches)
        finally:
            kernel.assign(rows)
        for scheme, square in squares.items():
            found[kernel.path, scheme] = loss * square / max(squares[smallest], 1e-30)
    return found


def _rounding_errors(rows: np.ndarray, schemes: Sequence[WeightScheme]) -> dict[WeightScheme, float]:
    """The squared errors of some rows by scheme."""
    some = rows[:: -(-len(rows) // _ROWS)]
    return {
        scheme: float(np.square(round_rows(some, scheme).values - some, dtype="float64").sum()) for scheme in schemes
    }


def by_inputs(
    model: keras.Model, kernels: Sequence[Kernel], fitting: Fitting, batches: Sequence[Batch], verbose: bool
) -> Errors:
    """The relative squared change of what each weight computes from its inputs; of the weight itself in a lookup."""
    statistics: dict[str, Statistics] = {}
    for ready in calibrate(model, kernels, batches, verbose):
        statistics |= {kernel.path: each for kernel, each in ready}
    found = {}
    for kernel in kernels:
        rows, known = kernel.rows(), statistics.get(kernel.path)
        for scheme in fitting[kernel.path]:
            change = round_rows(rows, scheme, None if known is None else importance(known)).values - rows
            if known is None:
                found[kernel.path, scheme] = float(np.square(change).sum() / np.square(rows).sum())
            else:
                found[kernel.path, scheme] = known.error(change) / max(known.error(rows), 1e-30)
    return found
