"""A scheme for each weight, within a budget of bytes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.quantization.calibration import Batch, as_batches, calibrate
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel, kernels_of
from keras_transformer.quantization.methods.clipping import importance
from keras_transformer.quantization.outputs import outputs_of
from keras_transformer.quantization.rounding import round_rows
from keras_transformer.quantization.scheme import WeightScheme

CANDIDATES = (WeightScheme(3, 32), WeightScheme(4, 128), WeightScheme(4, 32), WeightScheme(8, None))


class Choice(NamedTuple):
    """A scheme for a weight, with what it costs.

    Attributes:
        scheme: `WeightScheme`, or None for float32.
        nbytes: int. Of the integers, packed, with scales and minima.
        error: float. What the outputs lose.
    """

    scheme: WeightScheme | None
    nbytes: int
    error: float


def choose_schemes(
    model: keras.Model,
    data: Any,
    budget: int,
    candidates: Sequence[WeightScheme] = CANDIDATES,
    measure: str = "output",
    verbose: bool = False,
) -> dict[str, WeightScheme | None]:
    """Chooses a scheme for each weight so that the whole model fits a budget and loses the least by measured sensitivities.

    Each weight alone is rounded by each candidate, and the error is measured; errors are taken to add up. Beginning with the
    smallest schemes, the step with the most error saved for each byte is taken, as long as it fits.

    Args:
        model: Functional `keras.Model`, in float32. It stays as it is.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them.
        budget: int. Bytes of all weights of the model, those that stay in float32 included. Weights of 2 and 3 bits count
            4, as files have them.
        candidates: list of `WeightScheme`. Of those that fit a weight, the cheapest for each error remain.
        measure: "output": the mean squared change of the model's outputs, relative to their mean square, with a run of the
            data for each weight and candidate; or "inputs": that of the outputs of the weight itself, from one run.
        verbose: bool. Whether progress is written to stderr.

    Returns:
        Dict of path to `WeightScheme`, for `quantize_weights`; None leaves a weight in float32.

    Raises:
        WeightQuantizationError: the smallest schemes do not fit the budget, no candidate fits a weight, or the data does not
            fit the model; nothing was measured then.

    Example:

    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "gelu"), keras.layers.Dense(64)])
    >>> candidates = [WeightScheme(4, 32), WeightScheme(8, None)]
    >>> schemes = choose_schemes(model, keras.random.normal((8, 64)), 8_000, candidates)
    >>> sorted(scheme.bits for scheme in schemes.values())
    [4, 8]
    """
    if measure not in ("output", "inputs"):
        raise WeightQuantizationError(f"measure must be 'output' or 'inputs'. Received: {measure!r}")
    least = least_bytes(model, candidates)
    if least > budget:
        raise WeightQuantizationError(f"the smallest schemes need {least:,} bytes, more than the budget of {budget:,}")
    return within(model, measured(model, as_batches(model, data), candidates, measure, verbose), budget)


def measured(
    model: keras.Model,
    batches: Sequence[Batch],
    candidates: Sequence[WeightScheme] = CANDIDATES,
    measure: str = "output",
    verbose: bool = False,
) -> dict[str, list[Choice]]:
    """What each weight loses in each scheme that fits it: the choices by path, for `within`.

    Args:
        model, candidates, measure, verbose: as for `choose_schemes`.
        batches: those of `as_batches`.
    """
    kernels = kernels_of(model)
    fitting = {kernel.path: _fitting(kernel, candidates) for kernel in kernels}
    errors = (_output_errors if measure == "output" else _own_errors)(model, kernels, fitting, batches, verbose)
    return {
        kernel.path: [
            Choice(scheme, nbytes(kernel, scheme), errors[kernel.path, scheme]) for scheme in fitting[kernel.path]
        ]
        for kernel in kernels
    }


def within(model: keras.Model, choices: Mapping[str, Sequence[Choice]], budget: int) -> dict[str, WeightScheme | None]:
    """The schemes by path with about the least loss, of choices that were measured, in a budget for the whole model."""
    rest = _other_bytes(model, kernels_of(model))
    return {path: choice.scheme for path, choice in cheapest(choices, budget - rest).items()}


def least_bytes(model: keras.Model, candidates: Sequence[WeightScheme] = CANDIDATES) -> int:
    """The bytes of all weights of a model with the smallest of the schemes.

    Raises:
        WeightQuantizationError: no candidate fits a weight.
    """
    kernels = kernels_of(model)
    smallest = (min(nbytes(kernel, scheme) for scheme in _fitting(kernel, candidates)) for kernel in kernels)
    return _other_bytes(model, kernels) + sum(smallest)


def most_bytes(model: keras.Model, candidates: Sequence[WeightScheme] = CANDIDATES) -> int:
    """The bytes of all weights of a model with the largest of the schemes that fit."""
    kernels = kernels_of(model)
    largest = (max(nbytes(kernel, scheme) for scheme in _fitting(kernel, candidates)) for kernel in kernels)
    return _other_bytes(model, kernels) + sum(largest)


def _other_bytes(model, kernels):
    """The bytes of the weights that stay in float32."""
    return 4 * (model.count_params() - sum(math.prod(kernel.variable.shape) for kernel in kernels))


def nbytes(kernel: Kernel, scheme: WeightScheme) -> int:
    """The bytes of a weight in a scheme, as `QuantizedWeights.nbytes` counts them."""
    numbers = math.prod(kernel.variable.shape)
    scales = numbers // (scheme.block_size or kernel.width)
    each = 4 if scheme.block_size is None else 4 if scheme.has_minimum else 2
    return numbers * scheme.stored_bits // 8 + scales * each


def _fitting(kernel, candidates):
    found = [scheme for scheme in candidates if kernel.width % (scheme.block_size or 1) == 0]
    if not found:
        raise WeightQuantizationError(f"no candidate fits {kernel.path!r}, which has rows of {kernel.width} numbers")
    return found


def _output_errors(model, kernels, fitting, batches, verbose):
    """The relative squared change of the model's outputs by weight and scheme, each rounded alone."""

    def outputs():
        for batch in batches:
            yield from outputs_of(model, batch)

    expected, found = list(outputs()), {}
    total = sum(float(np.square(each, dtype="float64").sum()) for each in expected)
    for number, kernel in enumerate(kernels):
        if verbose:
            print(f"{kernel.path}: {number + 1} of {len(kernels)}", file=sys.stderr, flush=True)
        rows = kernel.rows()
        try:
            for scheme in fitting[kernel.path]:
                kernel.assign(round_rows(rows, scheme).values)
                pairs = zip(outputs(), expected, strict=True)
                found[kernel.path, scheme] = (
                    sum(float(np.square(a - b, dtype="float64").sum()) for a, b in pairs) / total
                )
        finally:
            kernel.assign(rows)
    return found


def _own_errors(model, kernels, fitting, batches, verbose):
    """The relative squared change of what each weight computes, by weight and scheme; of the weight itself in a lookup."""
    statistics = {}
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


def cheapest(choices: Mapping[str, Sequence[Choice]], budget: int) -> dict[str, Choice]:
    """The choice for each name with about the least sum of errors, whose bytes are at most a budget.

    From the smallest on, the step to a larger choice of a name with the most error saved for each byte is taken, if it fits.

    Example:

    >>> small, large, larger = (Choice(None, *each) for each in ((1, 9.0), (2, 5.0), (4, 4.0)))
    >>> found = cheapest({"a": [small, large, larger], "b": [small, large._replace(error=8.0)]}, 4)
    >>> [(name, choice.nbytes) for name, choice in found.items()]
    [('a', 2), ('b', 2)]
    """
    current = {name: min(each, key=lambda choice: (choice.nbytes, choice.error)) for name, each in choices.items()}
    spent = sum(choice.nbytes for choice in current.values())
    while True:
        steps = [
            ((current[name].error - choice.error) / max(choice.nbytes - current[name].nbytes, 1), name, index)
            for name, each in choices.items()
            for index, choice in enumerate(each)
            if choice.error < current[name].error and spent + choice.nbytes - current[name].nbytes <= budget
        ]
        if not steps:
            return current
        _, name, index = max(steps)
        spent += choices[name][index].nbytes - current[name].nbytes
        current[name] = choices[name][index]
