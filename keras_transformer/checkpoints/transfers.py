"""Which tensor fills which weight: settled, and checked, before any memory is taken."""

import math
import re
from typing import NamedTuple

import keras

from keras_transformer.checkpoints.errors import (
    CheckpointError,
    MissingTensorError,
    TensorShapeError,
    UnexpectedTensorError,
)

_SHOWN = 3


class Transfer(NamedTuple):
    """An entry of the mapping with the variables that it names."""

    theirs: tuple
    variables: tuple
    layout: object

    @property
    def shapes(self):
        """The shapes of the variables: list of tuples."""
        return [tuple(variable.shape) for variable in self.variables]

    @property
    def size(self):
        """int: the numbers that it moves."""
        return sum(map(math.prod, self.shapes))


def pair(entries, model):
    """The entries whose weights the model has, with its variables.

    Args:
        entries: list of `mapping.Entry`.
        model: `keras.Model`.

    Returns:
        list of `Transfer`.

    Raises:
        CheckpointError: the model has only some of the weights of an entry, or two weights of one path.
    """
    by_path = {}
    for variable in weights_of(model):
        if by_path.setdefault(variable.path, variable) is not variable:
            raise CheckpointError(f"{model.name!r} has two weights {variable.path!r}.")
    missing = [path for entry in entries for path in entry.ours if path not in by_path]
    if missing:
        raise CheckpointError(f"{model.name!r} has no weight {_list(missing)}.")
    return [Transfer(entry.theirs, tuple(by_path[path] for path in entry.ours), entry.layout) for entry in entries]


def weights_of(model):
    """The variables of a model that a checkpoint can hold: all but integers, which are generators' states and counts."""
    return [variable for variable in model.variables if keras.backend.is_float_dtype(variable.dtype)]


def check(transfers, model, tensors, architecture, source):
    """Compares the names and shapes of a mapping with those in the headers of the files.

    Args:
        transfers: list of `Transfer`.
        model: `keras.Model`: every weight of it needs a transfer.
        tensors: dict of name to `TensorInfo`: those that have to find their place.
        architecture: `Architecture`.
        source: what to name in errors.

    Raises:
        MissingTensorError: a weight without a tensor.
        TensorShapeError: a tensor of another shape.
        UnexpectedTensorError: a tensor without a weight.
    """
    missing = [name for transfer in transfers for name in transfer.theirs if name not in tensors]
    if missing:
        raise MissingTensorError(f"{source} has no tensor {_list(missing)}.")
    filled = {id(variable) for transfer in transfers for variable in transfer.variables}
    empty = [variable.path for variable in weights_of(model) if id(variable) not in filled]
    empty = [path for path in empty if not any(re.search(pattern, path) for pattern in architecture.drawn)]
    if empty:
        raise MissingTensorError(f"{source} has no tensor for the weight {_list(empty)}.")
    for transfer in transfers:
        for name, shape in zip(transfer.theirs, transfer.layout.shapes(transfer.shapes), strict=True):
            if tensors[name].shape != tuple(shape):
                raise TensorShapeError(
                    f"{source}: {name!r} is {tensors[name].shape}; its config asks for {tuple(shape)}."
                )
    known = {name for transfer in transfers for name in transfer.theirs} | set(architecture.tied)
    extra = [name for name in tensors if name not in known]
    if extra:
        raise UnexpectedTensorError(f"{source} has a tensor that the model has no place for: {_list(extra)}.")


def _list(names):
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
