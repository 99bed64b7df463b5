"""Stopping a training at the first step that is not finite, with the weights from before it."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable

import keras

from keras_transformer.attention.arguments import positive
from keras_transformer.backend import keras_private
from keras_transformer.training.errors import NonFiniteError
from keras_transformer.training.monitoring.nan_origin import find_origin
from keras_transformer.training.monitoring.observed_steps import observe_steps, stop_observing
from keras_transformer.training.monitoring.replay import write_replay
from keras_transformer.training.monitoring.variable_copies import VariableCopies, first_not_finite, state_variables
from keras_transformer.utils.types import Logs, Path, Tensor


class StopAtNaN(keras.callbacks.Callback):
    """Callback that stops at the first step with a loss, gradient or weight that is NaN or infinite, and says where.

    It raises `NonFiniteError`, whose message names the step, the first layer whose output or gradient is not finite, and a
    file with which `training.replay` repeats that step. The model then has the weights, the optimizer state and the seeds
    from before the step: it can be saved, or trained on with other data or another learning rate.

    `keras.callbacks.TerminateOnNaN` stops after the step, with weights that are NaN already.

    How: weights and optimizer state are copied to the memory of the host every `every` steps and at the start of each
    epoch, and the batches since then are kept. If the loss or a value of the next copy is not finite, the steps since the
    last one are repeated one by one. Between the copies a step costs nothing more.

    Args:
        directory: str or path. Folder of the file, "nan_step_STEP.npz", created when needed.
        every: int >= 1. Interval of copies in steps. Default 50. A smaller one keeps fewer batches and repeats fewer steps.

    Raises:
        NonFiniteError: in `fit`, at most `every` steps after the one it names.
        DistributionError: when `fit` begins, with several replicas of `tf.distribute`.
        ValueError: `every` below 1.

    Place it first in the list of callbacks, before those that save at the end of an epoch. A training in float16
    (`LossScaleOptimizer`) leaves out steps with infinite gradients by itself; they do not stop it, an infinite loss does.
    Where kernels are not deterministic, the repeated step may be finite: the error then has no `origin`, and the weights
    are those of the copy.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import training
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, name="dense")])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((8, 1))
    >>> x[5] = np.nan
    >>> try:
    ...     _ = model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=[StopAtNaN("run")])
    ... except training.NonFiniteError as error:
    ...     print(error)
    Step 5 (epoch 0, batch 5) is not finite: 'x' of the batch (1 of 1 values is not finite: NaN). The model has the
    weights from before it; training.replay('run/nan_step_5.npz', model) repeats it.
    """

    def __init__(self, directory: Path, every: int = 50) -> None:
        super().__init__()
        self.directory = pathlib.Path(directory)
        self.every = positive("every", every)
        self._reset()

    def _reset(self):
        self._copies: VariableCopies | None = None
        # In place of self.model, which on JAX moves the state of the training into the model.
        self._trained: keras.Model = None
        # Batches since the copy, each with its step, epoch and index in the epoch.
        self._kept: list[tuple[int, int, int, object]] = []
        self._is_due = True
        self._step = self._epoch = self._batch = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._reset()
        self._trained = self.model
        observe_steps(self.model, self._before_step)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        # Other callbacks may change weights and learning rates between epochs.
        self._epoch, self._batch, self._is_due = epoch, 0, True

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if len(self._kept) >= self.every:
            self._check(logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._check(logs)

    def on_train_end(self, logs: Logs | None = None) -> None:
        stop_observing(self.model, self._before_step)
        self._reset()

    def _before_step(self, batches: list[object], value: Callable[[keras.Variable], Tensor]) -> None:
        if self._is_due:
            self._copies = VariableCopies(state_variables(self._trained), value)
            self._kept, self._is_due = [], False
        for batch in batches:
            self._kept.append((self._step, self._epoch, self._batch, batch))
            self._step += 1
            self._batch += 1

    def _check(self, logs):
        copies = VariableCopies(state_variables(self.model))
        if not math.isfinite((logs or {}).get("loss", 0.0)) or not copies.are_finite():
            self._stop()
        self._copies, self._kept = copies, []

    def _stop(self):
        model, copies, kept = self.model, self._copies, self._kept
        stop_observing(model, self._before_step)
        if copies is None or not kept:
            raise NonFiniteError(f"The weights are not finite before step {self._step}.", self._step)
        copies.restore()
        for step, epoch, index, batch in kept:
            before = VariableCopies(state_variables(model))
            if not _is_step_finite(model, batch):
                before.restore()
                self._report(
                    step, f"Step {step} (epoch {epoch}, batch {index})", keras.utils.unpack_x_y_sample_weight(batch)
                )
        copies.restore()
        first, last = kept[0][0], kept[-1][0]
        raise NonFiniteError(
            f"One of the steps {first} to {last} was not finite, but none is when they are repeated: the result depends on "
            f"the device. The model has the weights from before step {first}.",
            step=first,
        )

    def _report(self, step, name, batch):
        origin = find_origin(self.model, *batch)
        path: pathlib.Path | None = self.directory / f"nan_step_{step}.npz"
        metadata = {"step": step, "origin": None if origin is None else str(origin)}
        try:
            write_replay(path, self.model, batch, metadata)
            repeat = f"training.replay('{path}', model) repeats it."
        except TypeError as error:
            path, repeat = None, str(error)
        raise NonFiniteError(
            f"{name} is not finite: {origin}. The model has the weights from before it; {repeat}", step, origin, path
        )


def _is_step_finite(model, batch):
    model.reset_metrics()
    logs = keras_private.run_train_function(model, batch)
    return math.isfinite(logs.get("loss", 0.0)) and first_not_finite(state_variables(model)) is None
