"""Finding steps whose loss is far above that of the steps before."""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.attention.arguments import positive
from keras_transformer.training.monitoring.observed_steps import observe_steps, stop_observing
from keras_transformer.training.monitoring.replay import write_batch
from keras_transformer.utils.types import Logs, Path, Tensor

_FEWEST = 20  # Losses before the first decision.
_DEVIATIONS_BY_MAD = 1.4826  # Of a normal distribution.
_SMALLEST_SPREAD = 1e-3  # Relative to the median: equal losses have no deviation at all.


@dataclasses.dataclass(frozen=True)
class LossSpike:
    """A step whose loss is far above that of the steps before.

    Attributes:
        step: int. Index of the step since the start of `fit`, from 0.
        epoch, batch: int. Epoch, and index of the batch in it, from 0.
        loss: float. Mean loss of the batch.
        median: float. Median loss of the steps before.
        score: float. Robust z-score of the loss.
        path: `pathlib.Path` of the file with the batch, or None.

    Example:

    >>> LossSpike(step=120, epoch=1, batch=20, loss=9.4, median=2.3, score=14.2).loss
    9.4
    """

    step: int
    epoch: int
    batch: int
    loss: float
    median: float
    score: float
    path: pathlib.Path | None = None


class LossSpikes(keras.callbacks.Callback):
    """Callback that reports steps whose loss is far above that of the steps before, with the batch.

    A loss is a spike if its robust z-score is above a threshold:

        (loss - median) / (1.4826 · median(|losses - median|))

    over the losses of the last `window` steps, spikes left out. Each spike is a `UserWarning`, and an item of `spikes`. The
    training goes on.

    Args:
        directory: str or path of a folder for the batches of spikes, "spike_step_STEP.npz", which `training.read_batch`
            reads; or None to keep none. Default None.
        threshold: float > 0. Default 8.
        window: int >= 20. Number of steps. Default 200.
        every: int >= 1. Interval in steps at which losses are looked at, so that a GPU is not waited for after each.
            Default 20.

    Raises:
        DistributionError: when `fit` begins, with several replicas of `tf.distribute`.
        ValueError: an argument out of its range.

    Attributes:
        spikes: list of `LossSpike`.

    The loss of a step is computed from the mean loss of the epoch so far, that `fit` logs. The first 20 steps are never
    spikes. With `steps_per_execution=k`, k steps count as one.

    Example:

    >>> import warnings
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> model.compile(keras.optimizers.SGD(1e-4), "mse")
    >>> y = 1 + np.random.default_rng(0).normal(size=(40, 1)) / 10
    >>> y[30] = 9
    >>> spikes = LossSpikes()
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     _ = model.fit(np.ones((40, 1)), y, batch_size=1, shuffle=False, callbacks=[spikes], verbose=0)
    >>> [spike.step for spike in spikes.spikes]
    [30]
    """

    def __init__(
        self, directory: Path | None = None, threshold: float = 8.0, window: int = 200, every: int = 20
    ) -> None:
        super().__init__()
        if not threshold > 0:
            raise ValueError(f"threshold must be above 0. Received: {threshold}")
        if positive("window", window) < _FEWEST:
            raise ValueError(f"window must be at least {_FEWEST}. Received: {window}")
        self.directory = None if directory is None else pathlib.Path(directory)
        self.threshold = threshold
        self.window = window
        self.every = positive("every", every)
        self.spikes: list[LossSpike] = []
        self._reset()

    def _reset(self):
        self._recent: collections.deque[float] = collections.deque(maxlen=self.window)
        # Steps not looked at yet: epoch, index of the batch, the batch, its rows, and the logged mean.
        self._pending: list[tuple[int, int, Any, int, Any]] = []
        self._batches: list[Any] = []
        self._step = self._epoch = self._rows = 0
        self._mean = 0.0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._reset()
        self.spikes = []
        observe_steps(self.model, self._before_step)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch, self._rows, self._mean = epoch, 0, 0.0

    def _before_step(self, batches: list[object], value: Callable[[keras.Variable], Tensor]) -> None:
        self._batches = batches

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        rows = sum(_rows(each) for each in self._batches)
        self._pending.append((self._epoch, batch, self._batches[-1], rows, (logs or {}).get("loss")))
        if len(self._pending) >= self.every:
            self._look()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._look()

    def on_train_end(self, logs: Logs | None = None) -> None:
        stop_observing(self.model, self._before_step)
        self._reset()

    def _look(self):
        pending, self._pending = self._pending, []
        for epoch, index, batch, rows, mean in pending:
            if mean is None:
                continue
            total, self._rows = self._mean * self._rows, self._rows + rows
            self._mean = float(mean)
            loss = (self._mean * self._rows - total) / max(rows, 1)
            if math.isfinite(loss):
                self._judge(epoch, index, batch, loss)
            self._step += 1

    def _judge(self, epoch, index, batch, loss):
        median, score = robust_score(loss, self._recent) if len(self._recent) >= _FEWEST else (loss, 0.0)
        if score <= self.threshold:
            self._recent.append(loss)
            return
        path = None
        if self.directory is not None:
            path = self.directory / f"spike_step_{self._step}.npz"
            write_batch(path, keras.utils.unpack_x_y_sample_weight(batch), {"step": self._step, "loss": loss})
        self.spikes.append(LossSpike(self._step, epoch, index, loss, median, score, path))
        kept = "" if path is None else f" Its batch is in '{path}'."
        warnings.warn(
            f"Step {self._step} (epoch {epoch}, batch {index}) has a loss of {loss:.4g}; the median of the "
            f"{len(self._recent)} steps before is {median:.4g} (robust z-score {score:.3g}).{kept}",
            stacklevel=2,
        )


def robust_score(loss: float, losses: Sequence[float]) -> tuple[float, float]:
    """Returns the median of losses, and the robust z-score of a further one.

    Example:

    >>> median, score = robust_score(5.0, [1.0, 2.0, 3.0])
    >>> median, round(score, 3)
    (2.0, 2.023)
    """
    values = np.asarray(losses)
    median = float(np.median(values))
    spread = _DEVIATIONS_BY_MAD * float(np.median(np.abs(values - median)))
    return median, (loss - median) / max(spread, _SMALLEST_SPREAD * abs(median), 1e-12)


def _rows(batch):
    x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
    return next(int(leaf.shape[0]) for leaf in keras.tree.flatten(x) if leaf is not None)
