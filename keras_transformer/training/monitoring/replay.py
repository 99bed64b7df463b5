"""Files with which a single training step can be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_transformer.training.checkpointing.snapshot import (
    VariableGroups,
    read_metadata,
    read_snapshot,
    training_variables,
    write_snapshot,
)
from keras_transformer.training.errors import CorruptCheckpointError, TrainingCheckpointError
from keras_transformer.training.monitoring.nan_origin import NaNOrigin, find_origin
from keras_transformer.utils.types import DType, Path


class _Array:
    """An array of a batch, in the form in which snapshots take variables."""

    def __init__(self, value: np.ndarray, path: str = "batch") -> None:
        self.value, self.path = value, path
        self.dtype, self.shape = value.dtype.name, value.shape

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype)

    def assign(self, value: np.ndarray) -> None:
        self.value = value


def write_replay(
    path: Path, model: keras.Model, batch: tuple[object, object, object], metadata: Mapping[str, object]
) -> None:
    """Writes the state of a model and a batch to a file, atomically.

    Args:
        path: str or path. Its directory is created.
        model: a compiled, built `keras.Model`, in the state before the step.
        batch: `(x, y, sample_weight)`, structures of arrays or None.
        metadata: dict of values that JSON supports.

    Raises:
        TypeError: an array of the batch has strings or objects.
    """
    groups = training_variables(model)
    write_batch(path, batch, metadata, {"model": groups["model"], "optimizer": groups["optimizer"]})


def write_batch(
    path: Path,
    batch: tuple[object, object, object],
    metadata: Mapping[str, object],
    groups: VariableGroups | None = None,
) -> None:
    """Writes a batch and groups of variables to a file, atomically; see `write_replay`.

    Raises:
        TypeError: an array of the batch has strings or objects.
    """
    arrays: list[_Array] = []

    def add(leaf):
        value = np.asarray(keras.ops.convert_to_numpy(leaf))
        if value.dtype.hasobject or value.dtype.kind in "SU":
            raise TypeError(f"A batch with values of dtype {value.dtype} cannot be written to '{path}'.")
        arrays.append(_Array(value))
        return len(arrays) - 1

    structure = [_map(add, part) for part in batch]
    groups = {**(groups or {}), "batch": arrays}
    described = {
        name: [[keras.backend.standardize_dtype(each.dtype), list(each.shape)] for each in group]
        for name, group in groups.items()
    }
    write_snapshot(path, groups, {**metadata, "batch": structure, "arrays": described})


def replay(path: Path, model: keras.Model) -> NaNOrigin | None:
    """Repeats the step of a file that `StopAtNaN` wrote, and returns where it becomes NaN or infinite.

    The model then has the weights and the optimizer state before that step. The file can also be read on another backend
    and another device than those of the training; the masks of dropout are others on another backend.

    Args:
        path: str or path of the file.
        model: the same model, compiled in the same way.

    Returns:
        `NaNOrigin`, or None if all is finite here: the step depends on the device or its libraries.

    Raises:
        CorruptCheckpointError: the file is damaged, or is no such file.
        TrainingCheckpointError: the model or its optimizer has other variables.

    Example:

    >>> from keras_transformer import training
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Lambda(keras.ops.log, name="log"), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> try:
    ...     _ = model.fit(-np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=[training.StopAtNaN("run")])
    ... except training.NonFiniteError as error:
    ...     origin = replay(error.path, model)
    >>> origin.stage, origin.layer
    ('forward', 'log')
    """
    batch = read_batch(path)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    groups = training_variables(model)
    _restore(path, {"model": groups["model"], "optimizer": groups["optimizer"]})
    return find_origin(model, *batch)


def _restore(path, groups):
    """Assigns the variables of a file, whose seeds have another dtype on another backend."""
    found = _read_arrays(path, list(groups))
    for group, variables in groups.items():
        shapes = [tuple(array.shape) for array in found[group]]
        if shapes != [tuple(variable.shape) for variable in variables]:
            raise TrainingCheckpointError(
                f"'{path}' has {group} variables of another model: their shapes are {shapes}."
            )
    for group, variables in groups.items():
        for variable, array in zip(variables, found[group], strict=True):
            variable.assign(keras.ops.cast(array.value, variable.dtype))


def _read_arrays(path, groups):
    """The arrays of groups of a file: dict of group to list of `_Array`."""
    described = read_metadata(path).get("arrays")
    if not isinstance(described, dict) or not set(groups) <= described.keys():
        raise CorruptCheckpointError(f"'{path}' lacks {' or '.join(groups)}: it is not a file of a single step.")
    found = {group: [_Array(np.zeros(shape, dtype)) for dtype, shape in described[group]] for group in groups}
    read_snapshot(path, found)
    return found


def read_batch(path: Path) -> tuple[Any, Any, Any]:
    """Returns the batch of a file that `StopAtNaN` or `LossSpikes` wrote.

    Args:
        path: str or path of the file.

    Returns:
        `(x, y, sample_weight)`: structures of numpy arrays, or None. Tuples are lists.

    Raises:
        CorruptCheckpointError: the file is damaged, or is no such file.

    Example:

    >>> write_batch("spike.npz", ({"token_ids": np.array([[3, 1]])}, np.array([1]), None), {"step": 3})
    >>> read_batch("spike.npz")
    ({'token_ids': array([[3, 1]])}, array([1]), None)
    """
    arrays = _read_arrays(path, ["batch"])["batch"]
    x, y, sample_weight = (_map(lambda index: arrays[index].value, part) for part in read_metadata(path)["batch"])
    return x, y, sample_weight


def _map(function, structure):
    """Applies a function to the leaves of dicts and lists; None stays None. Tuples become lists, as in JSON."""
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        return {key: _map(function, each) for key, each in structure.items()}
    if isinstance(structure, (list, tuple)):
        return [_map(function, each) for each in structure]
    return function(structure)
