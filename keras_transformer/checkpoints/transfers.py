"""Transfers between tensors of a checkpoint and weights of a model, checked before memory is allocated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.errors import (
    CheckpointError,
    MissingTensorError,
    TensorShapeError,
    TensorTypeError,
    UnexpectedTensorError,
)
from keras_transformer.checkpoints.files.folder import TensorInfo
from keras_transformer.checkpoints.layouts import Layout
from keras_transformer.checkpoints.mapping import Entry

_SHOWN = 3


class Transfer(NamedTuple):
    """An entry of the mapping, with the variables that it names."""

    theirs: tuple[str, ...]
    variables: tuple[keras.Variable, ...]
    layout: Layout

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the variables: list of tuples."""
        return [tuple(variable.shape) for variable in self.variables]

    @property
    def size(self) -> int:
        """int: the number of elements of the variables."""
        return sum(map(math.prod, self.shapes))


def make_transfers(entries: list[Entry], model: keras.Model) -> list[Transfer]:
    """Returns the transfers of a mapping to the variables of a model.

    Args:
        entries: list of `mapping.Entry`.
        model: `keras.Model`.

    Returns:
        list of `Transfer`.

    Raises:
        CheckpointError: the model lacks a weight, or has two weights of one path.
    """
    by_path: dict[str, keras.Variable] = {}
    for variable in weights_of(model):
        if by_path.setdefault(variable.path, variable) is not variable:
            raise CheckpointError(f"{model.name!r} has two weights {variable.path!r}.")
    missing = [path for entry in entries for path in entry.ours if path not in by_path]
    if missing:
        raise CheckpointError(f"{model.name!r} has no weight {listed(missing)}.")
    return [Transfer(entry.theirs, tuple(by_path[path] for path in entry.ours), entry.layout) for entry in entries]


def weights_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that a checkpoint can contain: all except integers, which are seeds and counts."""
    return [variable for variable in model.variables if keras.backend.is_float_dtype(variable.dtype)]


def check_transfers(
    transfers: list[Transfer],
    model: keras.Model,
    tensors: Mapping[str, TensorInfo],
    architecture: Architecture,
    source: str,
) -> None:
    """Compares the names and shapes of a mapping with those in the headers of the files.

    Args:
        transfers: list of `Transfer`.
        model: `keras.Model`, every weight of which needs a transfer.
        tensors: dict of name to `TensorInfo`, of the tensors that need a transfer.
        architecture: `Architecture`.
        source: str. The name in errors.

    Raises:
        MissingTensorError: a weight has no tensor.
        TensorShapeError: a tensor has another shape.
        TensorTypeError: a tensor has a dtype that its layout does not support, such as integers in place of floats.
        UnexpectedTensorError: a tensor has no weight.
    """
    missing = [name for transfer in transfers for name in transfer.theirs if name not in tensors]
    if missing:
        raise MissingTensorError(f"{source} has no tensor {listed(missing)}.")
    empty = weights_without_tensor(transfers, model, architecture)
    if empty:
        raise MissingTensorError(f"{source} has no tensor for the weight {listed(empty)}.")
    for transfer in transfers:
        for name, shape in zip(transfer.theirs, transfer.layout.shapes(transfer.shapes), strict=True):
            if tensors[name].shape != tuple(shape):
                raise TensorShapeError(
                    f"{source}: {name!r} has shape {tensors[name].shape}; its config requires {tuple(shape)}."
                )
            if tensors[name].dtype not in transfer.layout.dtypes:
                supported = ", ".join(transfer.layout.dtypes)
                raise TensorTypeError(
                    f"{source}: {name!r} has the dtype {tensors[name].dtype}; supported for it: {supported}."
                )
    known = {name for transfer in transfers for name in transfer.theirs} | set(architecture.tied)
    extra = [name for name in tensors if name not in known]
    if extra:
        raise UnexpectedTensorError(f"{source} has a tensor for which the model has no weight: {listed(extra)}.")


def check_range(name: str, value: np.ndarray, dtype: str, source: str) -> None:
    """Refuses finite values that become infinite in a dtype.

    Args:
        name: str. The name of the tensor or weight in errors.
        value: float array.
        dtype: str. The dtype that it is converted to.
        source: str. The name of the file in errors.

    Raises:
        TensorTypeError: a value is beyond the range of the dtype.
    """
    import ml_dtypes

    if ml_dtypes.finfo(value.dtype).max <= ml_dtypes.finfo(dtype).max:
        return
    with np.errstate(over="ignore"):
        lost = np.isfinite(value) & ~np.isfinite(value.astype(dtype))
    if lost.any():
        place = tuple(int(each) for each in np.argwhere(lost)[0])
        raise TensorTypeError(
            f"{source}: {name!r} has the value {float(value[place]):g} at {place}, which is infinite in {dtype}. Load it "
            "with a dtype of a larger range."
        )


def weights_without_tensor(transfers: list[Transfer], model: keras.Model, architecture: Architecture) -> list[str]:
    """Returns the paths of the weights that no transfer names and that are not `architecture.initialized`."""
    filled = {id(variable) for transfer in transfers for variable in transfer.variables}
    paths = [variable.path for variable in weights_of(model) if id(variable) not in filled]
    return [path for path in paths if not any(re.search(pattern, path) for pattern in architecture.initialized)]


def listed(names: list[str]) -> str:
    """Returns names as text for an error, the first three of many."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
