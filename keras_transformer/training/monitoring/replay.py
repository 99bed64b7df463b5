"""Files with which a single training step can be repeated."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_transformer.training.errors import CorruptCheckpointError
from keras_transformer.training.monitoring.nan_origin import NaNOrigin, find_origin
from keras_transformer.training.snapshot import (
    VariableGroups,
    read_metadata,
    read_snapshot,
    training_variables,
    write_snapshot,
)
from keras_transformer.utils.types import Path


class _Array:
    """An array of a batch, in the form in which snapshots take variables."""

    def __init__(self, value: np.ndarray, path: str = "batch") -> None:
        self.value, self.path = value, path
        self.dtype, self.shape = value.dtype.name, value.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype)

    def assign(self, value: np.ndarray) -> None:
        self.value = value


def write_replay(path: Path, model: keras.Model, batch: tuple[Any, Any, Any], metadata: Mapping[str, Any]) -> None:
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
    path: Path, batch: tuple[Any, Any, Any], metadata: Mapping[str, Any], groups: VariableGroups | None = None
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
    described = [[array.dtype, list(array.shape)] for array in arrays]
    write_snapshot(path, {**(groups or {}), "batch": arrays}, {**metadata, "batch": structure, "arrays": described})


def replay(path: Path, model: keras.Model) -> NaNOrigin | None:
    """Repeats the step of a file that `StopAtNaN` wrote, and returns where it becomes NaN or infinite.

    The model then has the weights and the optimizer state before that step. The file is also readable on another backend
    and another device than those of the training.

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
    read_snapshot(path, {"model": groups["model"], "optimizer": groups["optimizer"]})
    return find_origin(model, *batch)


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
    metadata = read_metadata(path)
    if "batch" not in metadata or "arrays" not in metadata:
        raise CorruptCheckpointError(f"'{pathlib.Path(path)}' has no batch: it is not a file of a single step.")
    arrays = [_Array(np.zeros(shape, dtype)) for dtype, shape in metadata["arrays"]]
    read_snapshot(path, {"batch": arrays})
    x, y, sample_weight = (_map(lambda index: arrays[index].value, part) for part in metadata["batch"])
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
