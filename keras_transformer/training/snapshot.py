"""The whole state of a training in one file, written so that a crash at any moment leaves the old one or the new one."""

import json
import os
import zipfile
from pathlib import Path

import keras
import numpy as np

from keras_transformer.training.errors import TrainingCheckpointError

_METADATA = "metadata"


def training_variables(model):
    """All variables that the next step of a training depends on, or changes, by group.

    Args:
        model: a compiled, built `keras.Model`.

    Returns:
        Dict of group to list of variables: "model" (weights, statistics, the states of seed generators), "optimizer" (slots,
        averages, accumulated gradients, the count of updates), and "metrics".
    """
    seen, groups = set(), {}
    for group, variables in (
        ("model", model.variables),
        ("optimizer", model.optimizer.variables),
        ("metrics", model.metrics_variables),
    ):
        groups[group] = [variable for variable in variables if id(variable) not in seen]
        seen.update(map(id, variables))
    return groups


def write_snapshot(path, groups, metadata, is_writer=True):
    """Writes variables and metadata to `path`: to a file beside it first, synced to the disk, which then takes its place.

    Args:
        path: str or path. Its directory is made.
        groups: dict of group to list of variables.
        metadata: dict that JSON can hold.
        is_writer: bool. False where another of several workers writes: metrics are the sum of what all workers have, which
            all must come together to read.
    """
    arrays, described = {}, {}
    for group, variables in groups.items():
        values = [keras.ops.convert_to_numpy(variable) for variable in variables]
        described[group] = [
            [variable.path, str(value.dtype), list(value.shape)]
            for variable, value in zip(variables, values, strict=True)
        ]
        # As bytes: numpy's files know no bfloat16.
        arrays |= {f"{group}/{index}": np.frombuffer(value.tobytes(), "uint8") for index, value in enumerate(values)}
    if not is_writer:
        return
    path = Path(path)
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


def read_metadata(path):
    """The metadata of a snapshot.

    Raises:
        TrainingCheckpointError: the file is not a whole snapshot.
    """
    return _read(path, {})[0]


def read_snapshot(path, groups):
    """Puts the values of a snapshot into variables, all of them or none.

    Args:
        path: str or path.
        groups: dict of group to list of variables, as at writing. A group that is not named is not read.

    Returns:
        The metadata.

    Raises:
        TrainingCheckpointError: the file is not a whole snapshot, or of variables of other numbers, shapes or types.
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
        raise TrainingCheckpointError(f"'{path}' is not a whole checkpoint: {error}") from error
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
                f"'{path}' holds {name} as {dtype} {tuple(shape)}; {variable.path} of the training is "
                f"{here} {tuple(variable.shape)}."
            )


def _dtype(name):
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _sync_directory(directory):
    """Makes a renaming last; not every system lets a directory be opened."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
