"""The learning-rate range test."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

import keras
import numpy as np

from keras_transformer.training.checkpointing.snapshot import training_variables
from keras_transformer.training.monitoring.variable_copies import VariableCopies
from keras_transformer.utils.types import Tensors

_DIVERGED = 4.0  # Times the lowest smoothed loss.


@dataclasses.dataclass(frozen=True)
class LearningRates:
    """The losses of a learning-rate range test.

    Attributes:
        rates: list of float. The learning rate of each step.
        losses: list of float. The loss of each step's batch, before its update.
        smoothed: list of float. Exponential moving averages of the losses, without bias.
        suggestion: float. The rate at which the smoothed loss falls most steeply; a start for the peak of a schedule.
        lowest: float. The rate of the lowest smoothed loss, at which training is about to diverge.

    Example:

    >>> LearningRates([0.1, 1.0], [2.0, 1.0], [2.0, 1.5], suggestion=0.1, lowest=1.0).suggestion
    0.1
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    suggestion: float
    lowest: float


def find_learning_rate(
    model: keras.Model,
    data: Iterable[object],
    *,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
    smoothing: float = 0.9,
) -> LearningRates:
    """Trains for some steps at a learning rate that grows exponentially, and suggests one; then restores everything.

    Step i of n has the rate `lowest · (highest / lowest)^(i / (n - 1))`. The test ends early when the smoothed loss is four
    times its minimum, or not finite. Weights, optimizer, metrics and seeds are afterwards what they were before.

    Args:
        model: a `keras.Model`, compiled with the optimizer that is to be used, at any constant learning rate.
        data: iterable of batches, as of `fit`: `(x, y)` or `(x, y, sample_weight)`. It starts again if it ends early.
        lowest, highest: float > 0. The range of learning rates. Defaults 1e-6 and 1.
        steps: int >= 3. Default 100.
        smoothing: float in [0, 1). Weight of the past in the moving average. Default 0.9.

    Returns:
        `LearningRates`, which `plots.learning_rates` draws.

    Raises:
        ValueError: an argument out of its range; no batches; a learning rate that is a schedule; or a loss that is not
            finite from the first steps on.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.1), "mse")
    >>> x = np.random.default_rng(0).normal(size=(32, 4))
    >>> found = find_learning_rate(model, [(x, x[:, :1])], lowest=1e-4, highest=10)
    >>> 1e-3 < found.suggestion < 1 < found.lowest < 10
    True

    Reference: Smith, Cyclical Learning Rates for Training Neural Networks, arXiv 1506.01186, section 3.3. There the rate
    grows linearly, and is read from a plot; the steepest descent of the smoothed loss is a common rule since.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"lowest must be above 0 and below highest. Received: {lowest} and {highest}")
    if steps < 3 or not 0 <= smoothing < 1:
        raise ValueError(f"steps must be at least 3, smoothing in [0, 1). Received: {steps} and {smoothing}")
    optimizer = model.optimizer
    if not isinstance(keras.optimizers.serialize(optimizer)["config"]["learning_rate"], (int, float)):
        raise ValueError("The learning rate is a schedule: compile the model with a constant one to find its peak.")
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    before = VariableCopies(variable for group in training_variables(model).values() for variable in group)
    ratio = (highest / lowest) ** (1 / (steps - 1))
    try:
        sweep = _sweep(model, _endless(data), [lowest * ratio**step for step in range(steps)], smoothing)
    finally:
        before.restore()
        model.reset_metrics()
    return _judged(*sweep)


def _endless(data: Iterable[object]) -> Iterator[tuple[Tensors, Tensors | None, Tensors | None]]:
    while True:
        is_empty = True
        for batch in data:
            is_empty = False
            yield keras.utils.unpack_x_y_sample_weight(batch)
        if is_empty:
            raise ValueError("The data has no batches.")


def _sweep(model, batches, rates, smoothing):
    """Returns the rates, losses and smoothed losses up to the step at which the training diverges."""
    losses, smoothed, average = [], [], 0.0
    for step, rate in enumerate(rates):
        model.optimizer.learning_rate = rate
        model.reset_metrics()
        loss = float(model.train_on_batch(*next(batches), return_dict=True)["loss"])
        if not math.isfinite(loss):
            break
        average = smoothing * average + (1 - smoothing) * loss
        losses.append(loss)
        smoothed.append(average / (1 - smoothing ** (step + 1)))
        if smoothed[-1] > _DIVERGED * min(smoothed) > 0:
            break
    return rates[: len(losses)], losses, smoothed


def _judged(rates, losses, smoothed):
    if len(losses) < 3:
        raise ValueError(f"The loss is not finite after {len(losses)} steps, at a rate of {(rates or [0])[-1]:.3g}.")
    lowest = int(np.argmin(smoothed))
    # Slopes by the logarithm of the rate, which grows by the same amount in each step.
    slopes = np.gradient(smoothed)[: max(lowest, 1)]
    return LearningRates(rates, losses, smoothed, rates[int(np.argmin(slopes))], rates[lowest])
