"""Exact resumption of an interrupted training."""

from __future__ import annotations

import pathlib
import warnings
from typing import TYPE_CHECKING

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.checkpointing.directory_lock import DirectoryLock
from keras_transformer.training.checkpointing.snapshot import (
    read_metadata,
    read_snapshot,
    training_variables,
    write_snapshot,
)
from keras_transformer.training.distribution.replicas import is_chief
from keras_transformer.training.errors import CorruptCheckpointError, TrainingCheckpointError
from keras_transformer.utils.errors import on_failure
from keras_transformer.utils.types import JsonObject, Logs, Path

if TYPE_CHECKING:
    from keras_transformer.data import BatchStream

_FILE = "checkpoint.npz"
_PREVIOUS = "checkpoint.previous.npz"


class TrainingCheckpoint(keras.callbacks.Callback):
    """Callback that saves the state of a training at intervals and resumes it exactly in the next `fit`.

    Saved are weights, the optimizer's variables (moments, averages of `use_ema`, accumulated gradients, the number of
    updates), the seeds of dropout, metrics within an epoch, the history, and the position in the data. The file is replaced
    atomically: a process that is killed at any moment loses only the steps since the last save. Repeated steps have the same
    losses. The file before it is kept: if the newest one is damaged, `fit` resumes from that, with a warning.

    `keras.callbacks.BackupAndRestore` saves weights and optimizer only, restarts an interrupted epoch with other dropout
    masks, and overwrites its file in place.

    Args:
        directory: str or path. Folder of the two files, created if missing. Use one folder per training: a second one that
            starts there while the first runs is refused.
        batches: the `BatchStream` that `fit` trains on, which is set to the right step; None for data that is the same in
            every epoch, in which case only whole epochs are saved.
        save_freq: "epoch" to save after each epoch, or int >= 1 to save also after that many batches, which needs `batches`.

    Raises:
        TrainingCheckpointError: when `fit` begins, before any variable changes, if another training saves to the directory,
            or the file was saved from another model, other data, or another number of steps per epoch.
        CorruptCheckpointError: when `fit` begins, if no file is complete. It is a `TrainingCheckpointError`.
        ValueError: an invalid `save_freq`, or an int without `batches`.

    With several workers (`training.distributed`), the first writes and all read: they must share the directory. A training
    can resume with another number of devices or workers, with other dropout masks.

    To resume, build and compile the same model, and call `fit` with the same arguments. Place the callback after those that
    add to the logs, and before those that change weights at the end of an epoch (`AveragedWeights(swap_on_epoch=True)`). The
    state of other callbacks (the patience of `EarlyStopping`) is not saved; they are also called for the skipped batches,
    with the metrics so far. Results are bit-identical on a CPU, and wherever kernels are deterministic.

    Example:

    >>> import keras, numpy as np
    >>> from keras_transformer.data import BatchStream
    >>> train = BatchStream(lambda epoch, step: (np.full((2, 1), step / 8), np.ones((2, 1))), steps_per_epoch=8)
    >>> def fit(epochs):
    ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    ...     model.compile("sgd", "mse")
    ...     callbacks = [TrainingCheckpoint("run", train, save_freq=3)]
    ...     return model.fit(train.repeat(), steps_per_epoch=8, epochs=epochs, callbacks=callbacks, verbose=0)
    >>> first = fit(epochs=1).history["loss"]
    >>> both = fit(epochs=2).history["loss"]  # Runs only the second epoch.
    >>> len(both), both[0] == first[0]
    (2, True)
    """

    def __init__(self, directory: Path, batches: BatchStream | None = None, save_freq: str | int = "epoch") -> None:
        super().__init__()
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
            raise ValueError(f"save_freq must be 'epoch' or an int of at least 1. Received: {save_freq!r}")
        if save_freq != "epoch" and batches is None:
            raise ValueError("Saving within an epoch needs batches: the position in other data cannot be restored.")
        self.path = pathlib.Path(directory) / _FILE
        self.previous = self.path.with_name(_PREVIOUS)
        self.batches = batches
        self.save_freq = save_freq
        self._lock = DirectoryLock(directory)
        self._reset()

    def _reset(self):
        self._history: JsonObject = {"epoch": [], "logs": {}}
        self._resume: JsonObject | None = None
        self._source = self.path
        self._epoch = self._done = self._since_saved = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._reset()
        if self.batches is not None:
            self.batches.first_step = 0
        if is_chief(self.model):
            self._lock.acquire()
        with on_failure(self._lock.release):
            self._begin()

    def _begin(self):
        metadata = self._newest()
        if metadata is None:
            return
        self._check(metadata)
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        groups = training_variables(model)
        del groups["metrics"]  # `fit` resets them; within an epoch they are restored after that.
        self._read(groups)
        self._history = metadata["history"]
        self._resume = metadata
        keras_private.set_initial_epoch(model, metadata["epoch"])
        if self.batches is not None:
            self.batches.first_step = metadata["epoch"] * (metadata["steps_per_epoch"] or 0) + metadata["step"]

    def _newest(self):
        """The metadata of the newest complete file, which becomes the source; None if there is no file."""
        errors = []
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                metadata = checked_metadata(read_metadata(path), path)
            except CorruptCheckpointError as error:
                errors.append(error)
                continue
            self._source = path
            if path is self.previous:
                reason = str(errors[0]) if errors else f"'{self.path}' is missing."
                warnings.warn(f"{reason} Resuming from the one before it, '{self.previous}'.", stacklevel=2)
            return metadata
        if errors:
            raise errors[0]
        return None

    def _check(self, metadata):
        here = {"steps_per_epoch": self.params.get("steps"), "data": getattr(self.batches, "fingerprint", "")}
        for name, value in here.items():
            if metadata[name] != value:
                raise TrainingCheckpointError(
                    f"'{self._source}' was saved with {name}={metadata[name]!r}; this training has {value!r}."
                )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch, self._done = epoch, 0
        if self._resume is None:
            return
        metadata, self._resume = self._resume, None
        self._restore_history()
        if metadata["step"] and self.batches is not None:
            self._restore_metrics(self.batches[0])
            self._done = metadata["step"]
            self._skip(metadata["step"])

    def _restore_metrics(self, batch):
        model = self.model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        # Metrics create their variables in their first batch; the values that it changes are read again.
        model.test_on_batch(x, y, sample_weight)
        self._read(training_variables(model))

    def _skip(self, steps):
        """Makes `fit` skip the completed steps of this epoch, without training and without data."""
        model = self.model
        train_function, logs = model.train_function, model.get_metrics_result()
        calls = -(-steps // (model.steps_per_execution or 1))

        def skip(*arguments):
            nonlocal calls
            calls -= 1
            if not calls:
                model.train_function = train_function
            # On JAX the function also returns the state.
            return logs if len(arguments) == 1 else (logs, arguments[0])

        model.train_function = skip

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if batch + 1 <= self._done:
            return
        self._since_saved += batch + 1 - self._done
        self._done = batch + 1
        if isinstance(self.save_freq, int) and self._since_saved >= self.save_freq:
            self._save(self._epoch, self._done)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._history["epoch"].append(epoch)
        for name, value in (logs or {}).items():
            self._history["logs"].setdefault(name, []).append(float(value))
        self._save(epoch + 1, 0)

    def on_train_end(self, logs: Logs | None = None) -> None:
        model = self.model
        if self._resume is not None:  # All epochs were complete.
            self._restore_history()
        keras_private.set_initial_epoch(model, None)
        self._lock.release()

    def _restore_history(self):
        history = self.model.history
        history.epoch[:0] = self._history["epoch"]
        for name, values in self._history["logs"].items():
            history.history[name] = list(values)

    def _save(self, epoch, step):
        self._since_saved = 0
        metadata = {
            "epoch": epoch,
            "step": step,
            "steps_per_epoch": self.params.get("steps"),
            "data": getattr(self.batches, "fingerprint", ""),
            "history": self._history,
        }
        self._write(training_variables(self.model), metadata)

    def _read(self, groups):
        """Assigns the values of the source to groups of variables."""
        read_snapshot(self._source, groups)

    def _write(self, groups, metadata):
        # A damaged file does not replace the complete one before it, from which this training was resumed.
        previous = self.previous if self._source is self.path else None
        write_snapshot(self.path, groups, metadata, is_chief(self.model), previous)
        self._source = self.path


def checked_metadata(metadata: JsonObject, path: Path) -> JsonObject:
    """Returns the metadata of a checkpoint if they are complete; otherwise raises `CorruptCheckpointError`."""
    steps, history = metadata.get("steps_per_epoch"), metadata.get("history")
    counts = [metadata.get("epoch"), metadata.get("step"), 0 if steps is None else steps]
    if (
        not all(type(count) is int and count >= 0 for count in counts)
        or not isinstance(metadata.get("data"), str)
        or not (isinstance(history, dict) and isinstance(history.get("epoch"), list))
        or not (isinstance(history.get("logs"), dict) and all(isinstance(v, list) for v in history["logs"].values()))
    ):
        raise CorruptCheckpointError(f"'{path}' is not a complete checkpoint: its metadata is {metadata!r:.200}")
    return metadata
