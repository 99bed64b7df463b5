"""The state of a training in one file, which is replaced atomically."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.training.errors import TrainingCheckpointError
from keras_transformer.utils.types import Path

_METADATA = "metadata"
VariableGroups = Mapping[str, Sequence[Any]]


def training_variables(model: keras.Model) -> dict[str, list[Any]]:
    """Returns all variables that the next training step reads or writes, by group.

    Args:
        model: a compiled, built `keras.Model`.

    Returns:
        dict of group to list of variables: "model" (weights, statistics, the states of seed generators), "optimizer" (slots,
        averages, accumulated gradients, the number of updates), and "metrics".
    """
    seen: set[int] = set()
    groups = {}
    for group, variables in (
        ("model", model.variables),
        ("optimizer", model.optimizer.variables),
        ("metrics", model.metrics_variables),
    ):
        groups[group] = [variable for variable in variables if id(variable) not in seen]
        seen.update(map(id, variables))
    return groups


def write_snapshot(path: Path, groups: VariableGroups, metadata: Mapping[str, Any], is_writer: bool = True) -> None:
    """Writes variables and metadata to a temporary file, which is synced to disk and then replaces `path`.

    Args:
        path: str or path. Its directory is created.
        groups: dict of group to list of variables.
        metadata: dict of values that JSON supports.
        is_writer: bool. False if another of several workers writes the file. Metrics are sums over the workers, which all
            must take part in reading them.
    """
    arrays: dict[str, Any] = {}
    described = {}
    for group, variables in groups.items():
        values = [keras.ops.convert_to_numpy(variable) for variable in variables]
        described[group] = [
            [variable.path, str(value.dtype), list(value.shape)]
            for variable, value in zip(variables, values, strict=True)
        ]
        # As bytes: numpy's file format does not support bfloat16.
        arrays |= {f"{group}/{index}": np.frombuffer(value.tobytes(), "uint8") for index, value in enumerate(values)}
    if not is_writer:
        return
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**metadata, "variables": described})
    arrays[_METADATA] = np.frombuffer(text.encode(), "uint8")
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    _sync_directory(path.parent)


def read_metadata(path: Path) -> dict[str, Any]:
    """Returns the metadata of a snapshot.

    Raises:
        TrainingCheckpointError: the file is not a complete snapshot.
    """
    return _read(path, {})[0]


def read_snapshot(path: Path, groups: VariableGroups) -> dict[str, Any]:
    """Assigns the values of a snapshot to variables, to all of them or to none.

    Args:
        path: str or path.
        groups: dict of group to list of variables, as for `write_snapshot`. Other groups are not read.

    Returns:
        The metadata.

    Raises:
        TrainingCheckpointError: the file is not a complete snapshot, or one of variables of other numbers, shapes or dtypes.
    """
    metadata, values = _read(path, groups)
    for group, variables in groups.items():
        for variable, value in zip(variables, values[group], strict=True):
            variable.assign(value)
    return metadata


def _read(path, groups):
    try:
        with np.load(path) as file:
            metadata = json.loads(file[_METADATA].tobytes())
            described = metadata.pop("variables")
            values = {}
            for group, variables in groups.items():
                _check(path, group, described[group], variables)
                values[group] = [
                    np.frombuffer(file[f"{group}/{index}"].tobytes(), _dtype(dtype)).reshape(shape)
                    for index, (_, dtype, shape) in enumerate(described[group])
                ]
    except TrainingCheckpointError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise TrainingCheckpointError(f"'{path}' is not a complete checkpoint: {error}") from error
    return metadata, values


def _check(path, group, described, variables):
    if len(described) != len(variables):
        raise TrainingCheckpointError(
            f"'{path}' holds {len(described)} {group} variables, this training has {len(variables)}."
        )
    for (name, dtype, shape), variable in zip(described, variables, strict=True):
        here = keras.backend.standardize_dtype(variable.dtype)
        if tuple(shape) != tuple(variable.shape) or dtype != here:
            raise TrainingCheckpointError(
                f"'{path}' holds {name} as {dtype} {tuple(shape)}; {variable.path} of this training is "
                f"{here} {tuple(variable.shape)}."
            )


def _dtype(name):
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _sync_directory(directory):
    """Syncs a directory after a rename, on systems that can open directories."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
