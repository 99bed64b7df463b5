"""The state of a training in one file, which is replaced atomically."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.training.errors import CorruptCheckpointError, TrainingCheckpointError
from keras_transformer.utils.errors import FILE_ERRORS
from keras_transformer.utils.types import JsonObject, Path

_METADATA = "metadata"
VariableGroups = Mapping[str, Sequence[keras.Variable]]


def training_variables(model: keras.Model) -> dict[str, list[keras.Variable]]:
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


def write_snapshot(
    path: Path,
    groups: VariableGroups,
    metadata: Mapping[str, object],
    is_writer: bool = True,
    previous: Path | None = None,
) -> None:
    """Writes variables and metadata to a temporary file, which is synced to disk and then replaces `path`.

    Args:
        path: str or path. Its directory is created.
        groups: dict of group to list of variables.
        metadata: dict of values that JSON supports.
        is_writer: bool. False if another of several workers writes the file. Metrics are sums over the workers, which all
            must take part in reading them.
        previous: path in the same directory, to which the replaced file is moved, or None to remove it.
    """
    arrays: dict[str, Any] = {}
    described = {}
    for group, variables in groups.items():
        values = [keras.ops.convert_to_numpy(variable) for variable in variables]
        described[group] = describe_variables(variables)
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
    if previous is not None and path.exists():
        _keep(path, pathlib.Path(previous))
    os.replace(partial, path)
    _sync_directory(path.parent)


def describe_variables(variables: Sequence[keras.Variable]) -> list[list[object]]:
    """Returns `[path, dtype, shape]` of each variable, for `check_variables`."""
    return [[each.path, keras.backend.standardize_dtype(each.dtype), list(each.shape)] for each in variables]


def _keep(path, previous):
    """Gives a file a second name, which replaces the file `previous`: there is a file at `path` all the time."""
    link = previous.with_name(f"{previous.name}.partial")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # The file system has no hard links.
        os.replace(path, previous)
        return
    os.replace(link, previous)
    link.unlink(missing_ok=True)  # Left where both names were of one file already.


def read_metadata(path: Path) -> JsonObject:
    """Returns the metadata of a snapshot, after reading all of it: every checksum, and every variable that it describes.

    Raises:
        CorruptCheckpointError: the file is not a complete snapshot.
    """
    with _open(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of '{damaged}' is wrong")
        metadata, described = _described(archive)
        for group, variables in described.items():
            for index, (name, dtype, shape) in enumerate(variables):
                size = archive.getinfo(f"{group}/{index}.npy").file_size
                if size < math.prod(shape) * _dtype(dtype).itemsize:
                    raise ValueError(f"{name} has {size} bytes, too few for {dtype} {tuple(shape)}")
    return metadata


def read_snapshot(path: Path, groups: VariableGroups) -> dict[str, np.ndarray]:
    """Assigns the values of a snapshot to variables, to all of them or to none.

    Args:
        path: str or path.
        groups: dict of group to list of variables, as for `write_snapshot`. Other groups are not read.

    Returns:
        The metadata.

    Raises:
        CorruptCheckpointError: the file is not a complete snapshot.
        TrainingCheckpointError: it is one of variables of other numbers, shapes or dtypes.
    """
    with _open(path) as archive:
        metadata, described = _described(archive)
        values = {}
        for group, variables in groups.items():
            check_variables(path, group, described[group], variables)
            values[group] = [
                np.frombuffer(_bytes(archive, f"{group}/{index}"), _dtype(dtype)).reshape(shape)
                for index, (_, dtype, shape) in enumerate(described[group])
            ]
    for group, variables in groups.items():
        for variable, value in zip(variables, values[group], strict=True):
            variable.assign(value)
    return metadata


@contextlib.contextmanager
def _open(path) -> Iterator[zipfile.ZipFile]:
    """Context with the open file, in which any error is one of the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            # Nothing is larger in memory than in the file.
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                    raise ValueError(f"'{entry.filename}' is compressed")
            yield archive
    except (TrainingCheckpointError, MemoryError):
        raise
    except FILE_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise CorruptCheckpointError(f"'{path}' is not a complete checkpoint: {reason}") from error


def _described(archive):
    """The metadata, and what it says of the variables: dict of group to list of (path, dtype, shape)."""
    metadata = json.loads(bytes(_bytes(archive, _METADATA)))
    described = metadata.pop("variables")
    for group, variables in described.items():
        for name, dtype, shape in variables:
            sizes_are_valid = all(type(size) is int and size >= 0 for size in shape)
            if not (isinstance(name, str) and isinstance(dtype, str) and sizes_are_valid):
                raise ValueError(f"variables of '{group}' are {variables!r:.200}")
    return metadata, described


def _bytes(archive, name):
    """The content of an entry, all of which is read and compared with its checksum."""
    file = io.BytesIO(archive.read(f"{name}.npy"))
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"'{name}' has another version of numpy's file format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    content = file.getbuffer()[file.tell() :]
    if dtype != np.uint8 or shape != (len(content),):
        raise ValueError(f"'{name}' is {dtype} {shape}, with {len(content)} bytes")
    return content


def check_variables(path: Path, group: str, described: Sequence[Any], variables: Sequence[keras.Variable]) -> None:
    """Compares variables with those of a checkpoint.

    Args:
        path: str or path. The name of the checkpoint in errors.
        group: str.
        described: list of `[path, dtype, shape]` of the checkpoint's variables.
        variables: list of variables.

    Raises:
        TrainingCheckpointError: other numbers, shapes or dtypes.
    """
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

        # A name that it lacks raises AttributeError, and one of something else TypeError.
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
