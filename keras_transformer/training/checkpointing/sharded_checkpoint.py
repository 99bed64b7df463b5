"""Exact resumption of a training whose weights are split over devices: each process saves and restores its parts."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.training.checkpointing.snapshot import VariableGroups, check_variables, describe_variables
from keras_transformer.training.checkpointing.training_checkpoint import TrainingCheckpoint, checked_metadata
from keras_transformer.training.errors import CorruptCheckpointError, DistributionError
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.data import BatchStream

# Items of a checkpoint: "metadata" and "metrics" are names of Orbax's own.
_METADATA = "training"
_ITEMS = {"model": "weights", "optimizer": "optimizer_state", "metrics": "metric_sums"}


class ShardedCheckpoint(TrainingCheckpoint):
    """`TrainingCheckpoint` in a directory of Orbax, to which each process writes the parts of weights that it has.

    `TrainingCheckpoint` collects all variables in the memory of each process, for one file. Here each process writes and
    reads its own parts only. A training resumes on any number of devices and processes, however they split the weights. All
    else is as for `TrainingCheckpoint`: what is saved, when, and that a training which is killed at any moment resumes
    exactly from the last complete checkpoint. If the newest one is damaged for one of the processes, all resume from the
    newest one that is intact, with a warning; the next save removes the damaged ones.

    Args:
        directory: str or path, which all processes share. Created if missing.
        batches: the `BatchStream` that `fit` trains on; None for data that is the same in every epoch.
        save_freq: "epoch" to save after each epoch, or int >= 1 to save also after that many batches.
        max_to_keep: int >= 1. How many checkpoints are kept. Default 2.

    Raises:
        DistributionError: another backend than JAX.
        TrainingCheckpointError: when `fit` begins, if another training saves to the directory, or the newest checkpoint is
            from another model, other data, or another number of steps per epoch.
        CorruptCheckpointError: when `fit` begins, if all checkpoints are damaged.
        ValueError: an invalid `save_freq` or `max_to_keep`.

    Needs `orbax-checkpoint`, which the extra "jax" installs.

    Example:

    >>> train = keras_transformer.data.BatchStream(make, steps_per_epoch=1000)  # doctest: +SKIP
    >>> model = training.distributed(build, compile_model, fully_sharded=True)  # doctest: +SKIP
    >>> callbacks = [ShardedCheckpoint("run", train, save_freq=100)]  # doctest: +SKIP
    >>> model.fit(train.repeat(), steps_per_epoch=1000, epochs=10, callbacks=callbacks)  # doctest: +SKIP
    """

    def __init__(
        self,
        directory: Path,
        batches: BatchStream | None = None,
        save_freq: str | int = "epoch",
        max_to_keep: int = 2,
    ) -> None:
        if keras.backend.backend() != "jax":
            raise DistributionError(f"ShardedCheckpoint needs JAX; the backend is {keras.backend.backend()}.")
        if isinstance(max_to_keep, bool) or not isinstance(max_to_keep, int) or max_to_keep < 1:
            raise ValueError(f"max_to_keep must be an int of at least 1. Received: {max_to_keep!r}")
        super().__init__(directory, batches, save_freq)
        import orbax.checkpoint as ocp

        self.path = pathlib.Path(directory).absolute()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=max_to_keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = ocp.CheckpointManager(self.path, options=options)
        self._args = ocp.args
        self._described: dict[str, list[list[object]]] = {}
        self._damaged: list[int] = []

    def _begin(self):
        self._damaged, errors = [], []
        for number in sorted(self._manager.all_steps(), reverse=True):
            self._source = self.path / str(number)
            try:
                super()._begin()
            except CorruptCheckpointError as error:
                self._damaged.append(number)
                errors.append(error)
                continue
            if errors:
                warnings.warn(f"{errors[0]} Resuming from the one before it, '{self._source}'.", stacklevel=2)
            return
        if errors:
            raise errors[0]

    def _newest(self):
        """The metadata of the source."""
        number = int(self._source.name)
        metadata = self._restored(number, {_METADATA: self._args.JsonRestore()})[_METADATA]
        described = metadata.pop("variables", None) if isinstance(metadata, dict) else None
        if not isinstance(described, dict):
            raise CorruptCheckpointError(f"'{self._source}' does not describe its variables.")
        self._described = described
        return checked_metadata(metadata, self._source)

    def _read(self, groups: VariableGroups):
        import jax

        wanted = {}
        for group, variables in groups.items():
            check_variables(self._source, group, self._described[group], variables)
            shapes = {
                str(index): jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)
                for index, value in enumerate(variable.value for variable in variables)
            }
            wanted[_ITEMS[group]] = self._args.StandardRestore(shapes)
        found = self._restored(int(self._source.name), wanted)
        for group, variables in groups.items():
            for index, variable in enumerate(variables):
                variable.assign(found[_ITEMS[group]][str(index)])

    def _write(self, groups: VariableGroups, metadata: dict[str, Any]):
        self._described = {group: describe_variables(variables) for group, variables in groups.items()}
        parts = {
            _ITEMS[group]: self._args.StandardSave({str(index): each.value for index, each in enumerate(variables)})
            for group, variables in groups.items()
        }
        parts[_METADATA] = self._args.JsonSave({**metadata, "variables": self._described})
        while self._damaged:  # They do not count among those that are kept.
            self._manager.delete(self._damaged.pop())
        number = (self._manager.latest_step() or 0) + 1
        self._manager.save(number, args=self._args.Composite(**parts))
        self._source = self.path / str(number)

    def _restored(self, number: int, wanted: Mapping[str, object]) -> Any:
        """Items of a checkpoint; raises `CorruptCheckpointError` in all processes if one of them cannot read its parts."""
        found, error = None, None
        try:
            found = self._manager.restore(number, args=self._args.Composite(**wanted))
        except library_exceptions() as raised:  # Of Orbax and TensorStore.
            error = raised
        if _in_any_process(error is not None):
            reason = one_line(error or "Another process cannot read its parts.", 200).rstrip(". ")
            raise CorruptCheckpointError(f"'{self.path / str(number)}' is damaged: {reason}.") from error
        return found


def _in_any_process(flag: bool) -> bool:
    import jax

    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(multihost_utils.process_allgather(flag).any())
