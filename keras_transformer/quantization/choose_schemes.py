"""A scheme for each weight, within a budget of bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras

from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel, kernels_of
from keras_transformer.quantization.observation.calibration import Batch, as_batches
from keras_transformer.quantization.observation.sensitivities import (
    Errors,
    by_inputs,
    by_outputs,
    divergence,
    squared_change,
)
from keras_transformer.quantization.scheme import WeightScheme

CANDIDATES = (WeightScheme(4, 128), WeightScheme(4, 32), WeightScheme(8, None))
MEASURES: dict[str, Callable[..., Errors]] = {
    "output": functools.partial(by_outputs, squared_change),
    "divergence": functools.partial(by_outputs, divergence),
    "inputs": by_inputs,
}


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

    Each weight alone is rounded, and the error is measured; errors are taken to add up. Beginning with the smallest schemes,
    the step with the most error saved for each byte is taken, as long as it fits.

    Args:
        model: Functional `keras.Model`, in float32. It stays as it is.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them.
        budget: int. Bytes of all weights of the model, those that stay in float32 included. Weights of 2 and 3 bits count
            4, as files have them.
        candidates: list of `WeightScheme`. Of those that fit a weight, the cheapest for each error remain.
        measure: key of `MEASURES`. "output": the squared change of the model's outputs, relative to their square;
            "divergence": that of the classes that the outputs, logits, stand for, in nats: both run the data once for each
            weight, rounded by the coarsest of its candidates, and scale the result for the others. "inputs": the squared
            change of the outputs of the weight itself, from one run; it does not see how much they matter.
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
    if measure not in MEASURES:
        raise WeightQuantizationError(f"measure must be one of {', '.join(MEASURES)}. Received: {measure!r}")
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
    errors = MEASURES[measure](model, kernels, fitting, batches, verbose)
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
