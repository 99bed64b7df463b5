"""Going on with a training that was broken off, exactly where it stood."""

from pathlib import Path

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.distribution import is_chief
from keras_transformer.training.errors import TrainingCheckpointError
from keras_transformer.training.snapshot import read_metadata, read_snapshot, training_variables, write_snapshot

_FILE = "checkpoint.npz"


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves the state of a training at intervals; `fit` called again with it goes on as if nothing had happened.

    Saved are weights, the optimizer's variables (moments, averages of `use_ema`, accumulated gradients, updates), the seeds
    of dropout, metrics in the midst of an epoch, the history, and the place in the data. The file is replaced at once or not
    at all: a process that is killed at any moment loses what it did since the last save, no more. Steps that are done anew
    give the losses that they gave.

    `keras.callbacks.BackupAndRestore` saves weights and optimizer only, starts a broken epoch from its beginning with other
    dropout, and overwrites its file in place.

    Args:
        directory: str or path. Where the file is; it is made. One training a directory.
        batches: the `BatchStream` that `fit` trains on, which is set to the right step; or None for data that is the same
            in every epoch, where only whole epochs are saved.
        save_freq: "epoch" to save after each epoch, or int >= 1: after every so many batches too; it needs `batches`.

    Raises:
        TrainingCheckpointError: when `fit` begins, before any variable changes, if the file is corrupt or was saved from
            another model, other data, or another number of steps per epoch.
        ValueError: `save_freq` is neither, or counts batches where `batches` is None.

    Where several workers train together (`training.distributed`), the first writes and all read: the directory is one that
    they share. Another number of devices or workers goes on from the same file, with dropout of its own.

    To go on, build and compile the same model, and call `fit` with the same arguments. Put it after callbacks that add to
    the logs, and before those that change weights at the end of an epoch (`AveragedWeights(swap_on_epoch=True)`). What other
    callbacks count (the patience of `EarlyStopping`) begins anew; they also see the batches that are passed over, in no time
    and with the metrics so far. Equal to the last bit on a CPU, and wherever the kernels in use give equal results twice.

    Example:

    >>> import keras, numpy as np
    >>> from keras_transformer.training import BatchStream
    >>> train = BatchStream(lambda epoch, step: (np.full((2, 1), step / 8), np.ones((2, 1))), steps_per_epoch=8)
    >>> def fit(epochs):
    ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    ...     model.compile("sgd", "mse")
    ...     callbacks = [TrainingCheckpoint("run", train, save_freq=3)]
    ...     return model.fit(train.repeat(), steps_per_epoch=8, epochs=epochs, callbacks=callbacks, verbose=0)
    >>> first = fit(epochs=1).history["loss"]
    >>> both = fit(epochs=2).history["loss"]  # Runs the second epoch alone.
    >>> len(both), both[0] == first[0]
    (2, True)
    """

    def __init__(self, directory, batches=None, save_freq="epoch"):
        super().__init__()
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
            raise ValueError(f"save_freq must be 'epoch' or an int of at least 1. Received: {save_freq!r}")
        if save_freq != "epoch" and batches is None:
            raise ValueError("Saving within an epoch needs batches: the place in other data cannot be found again.")
        self.path = Path(directory) / _FILE
        self.batches = batches
        self.save_freq = save_freq
        self._reset()

    def _reset(self):
        self._history, self._resume = {"epoch": [], "logs": {}}, None
        self._epoch = self._done = self._since_saved = 0

    def on_train_begin(self, logs=None):
        self._reset()
        if self.batches is not None:
            self.batches.first_step = 0
        if not self.path.exists():
            return
        model = self.model
        metadata = read_metadata(self.path)
        self._check(metadata)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        groups = training_variables(model)
        del groups["metrics"]  # `fit` resets them; in the midst of an epoch they are put back after that.
        read_snapshot(self.path, groups)
        self._history = metadata["history"]
        self._resume = metadata
        keras_private.set_initial_epoch(model, metadata["epoch"])
        if self.batches is not None:
            self.batches.first_step = metadata["epoch"] * (metadata["steps_per_epoch"] or 0) + metadata["step"]

    def _check(self, metadata):
        here = {"steps_per_epoch": self.params.get("steps"), "data": getattr(self.batches, "fingerprint", "")}
        for name, value in here.items():
            if metadata[name] != value:
                raise TrainingCheckpointError(
                    f"'{self.path}' was saved with {name}={metadata[name]!r}, the training has {value!r}."
                )

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._done = epoch, 0
        if self._resume is None:
            return
        metadata, self._resume = self._resume, None
        self._put_history_back()
        if metadata["step"]:
            self._put_metrics_back()
            self._done = metadata["step"]
            self._pass_over(metadata["step"])

    def _put_metrics_back(self):
        model = self.model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(self.batches[0])
        # Metrics have no variables before their first batch; what this one changes is then read anew.
        model.test_on_batch(x, y, sample_weight)
        read_snapshot(self.path, training_variables(model))

    def _pass_over(self, steps):
        """Lets `fit` go through the steps of this epoch that are done, without training and without data."""
        model = self.model
        train_function, logs = model.train_function, model.get_metrics_result()
        calls = -(-steps // (model.steps_per_execution or 1))

        def skip(*arguments):
            nonlocal calls
            calls -= 1
            if not calls:
                model.train_function = train_function
            # JAX hands its state through.
            return logs if len(arguments) == 1 else (logs, arguments[0])

        model.train_function = skip

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 <= self._done:
            return
        self._since_saved += batch + 1 - self._done
        self._done = batch + 1
        if self.save_freq != "epoch" and self._since_saved >= self.save_freq:
            self._save(self._epoch, self._done)

    def on_epoch_end(self, epoch, logs=None):
        self._history["epoch"].append(epoch)
        for name, value in (logs or {}).items():
            self._history["logs"].setdefault(name, []).append(float(value))
        self._save(epoch + 1, 0)

    def on_train_end(self, logs=None):
        model = self.model
        if self._resume is not None:  # Nothing was left to do.
            self._put_history_back()
        keras_private.set_initial_epoch(model, None)

    def _put_history_back(self):
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
        write_snapshot(self.path, training_variables(self.model), metadata, is_writer=is_chief(self.model))
