"""Norms of gradients, weights and updates of each layer during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.backend.gradients.loss_gradients import gradient_function
from keras_transformer.training.monitoring.names import path_in
from keras_transformer.training.monitoring.observed_steps import observe_steps, stop_observing
from keras_transformer.training.monitoring.variable_copies import VariableCopies
from keras_transformer.utils.types import Logs, Tensor


class GradientsByLayer(keras.callbacks.Callback):
    """Callback that records the norms of gradients, weights and updates of each layer, at intervals of steps.

    A layer whose gradients are much smaller than those of others learns nothing; one whose updates are more than about a
    hundredth of its weights is about to diverge. `plots.gradients_by_layer` draws the record.

    Args:
        every: int >= 1. Interval in steps. Default 100: a recorded step takes about twice the time of another, so that the
            training takes a hundredth more.
        depth: int >= 1. Number of names in the path of a layer by which weights are grouped. Default 2, such as
            "decoder_block_0/self_attention"; 1 groups by block.

    Raises:
        DistributionError: when `fit` begins, with several replicas of `tf.distribute`.
        ValueError: an argument below 1.

    Attributes:
        steps: list of int. The recorded steps since the start of `fit`, from 0.
        gradients, weights, updates: dict of the path of a layer, in the order of the model, to a list of float, one for each
            recorded step: the norm of the gradient of the batch's loss, without clipping; the norm of the weights before the
            step; and that of the change by the step.

    The gradient is computed for the callback alone, by a function that is compiled once; weights and seeds remain those of
    the training. The model must train by Keras's own `train_step`. With `steps_per_execution=k`, the update is that of k
    steps.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="a"), keras.layers.Dense(1, name="b")])
    >>> model.compile(keras.optimizers.SGD(0.5), "mse")
    >>> norms = GradientsByLayer(every=2)
    >>> _ = model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=2, callbacks=[norms], verbose=0)
    >>> norms.steps, list(norms.gradients)
    ([0, 2], ['a', 'b'])
    >>> bool(np.isclose(norms.updates["b"][0], 0.5 * norms.gradients["b"][0]))
    True
    """

    def __init__(self, every: int = 100, depth: int = 2) -> None:
        super().__init__()
        self.every = positive("every", every)
        self.depth = positive("depth", depth)
        self.steps: list[int] = []
        self.gradients: dict[str, list[float]] = {}
        self.weights: dict[str, list[float]] = {}
        self.updates: dict[str, list[float]] = {}
        self._trained: keras.Model = None
        self._step = 0
        self._function: Callable[..., Any] | None = None
        self._before: VariableCopies | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        # In place of self.model, which on JAX moves the state of the training into the model.
        self._trained, self._step, self._function, self._before = self.model, 0, None, None
        self.steps = []
        self._groups = [self._layer(variable) for variable in self._trained.trainable_variables]
        for norms in (self.gradients, self.weights, self.updates):
            norms.clear()
            norms.update({layer: [] for layer in self._groups})
        observe_steps(self._trained, self._before_step)

    def _layer(self, variable):
        *parts, name = path_in(variable, self._trained).split("/")
        return "/".join(parts[: self.depth]) or name

    def _before_step(self, batches: list[object], value: Callable[[keras.Variable], Tensor]) -> None:
        first = self._step
        self._step += len(batches)
        if not any(step % self.every == 0 for step in range(first, self._step)):
            return
        model = self._trained
        if self._function is None:
            self._function = gradient_function(model, lambda gradients: [_norm(each) for each in gradients])
        self.steps.append(first)
        self._before = VariableCopies(model.trainable_variables, value)
        norms = self._function(keras.utils.unpack_x_y_sample_weight(batches[0]), value)
        self._add(self.gradients, [float(norm) for norm in norms])
        self._add(self.weights, [_norm_of_array(array) for array in self._before.values])

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self._before is None:
            return
        before, self._before = self._before, None
        _ = self.model  # On JAX this moves the state of the training into the model.
        changes = [
            keras.ops.convert_to_numpy(variable).astype("float32") - value
            for variable, value in zip(before.variables, before.values, strict=True)
        ]
        self._add(self.updates, [_norm_of_array(change) for change in changes])

    def on_train_end(self, logs: Logs | None = None) -> None:
        stop_observing(self._trained, self._before_step)
        self._function = None

    def _add(self, record, norms):
        squares = dict.fromkeys(record, 0.0)
        for layer, norm in zip(self._groups, norms, strict=True):
            squares[layer] += norm**2
        for layer, square in squares.items():
            record[layer].append(float(np.sqrt(square)))


def _norm(gradient):
    if gradient is None:
        return ops.zeros(())
    return ops.sqrt(ops.sum(ops.square(ops.cast(gradient, "float32"))))


def _norm_of_array(array):
    return float(np.sqrt(np.sum(np.square(array.astype("float32")))))
