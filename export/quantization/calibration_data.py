"""Calibration data: batches of what a signature takes, checked once for all formats and precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import InputError, QuantizationError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.inputs import check_inputs, own_name
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.observation.batches import named_batches
from keras_transformer.utils.types import ArrayLike

# What `calibration` takes; see `named_batches`.
Calibration: TypeAlias = "ArrayLike | Mapping[str, ArrayLike] | Iterable[ArrayLike] | Callable[[], Iterable[ArrayLike]]"
Batch: TypeAlias = "dict[str, np.ndarray]"
# Rows of a batch: a runtime that keeps all of its tensors has as many of each.
_ROWS = 16
_AXIS = "batch"


def calibration_batches(data: Calibration, inputs: Sequence[ArraySpec]) -> list[Batch]:
    """Calibration data as batches of the inputs of a signature.

    Args:
        data: one batch, or batches, in any of the forms of `quantization.observation.batches.named_batches`.
        inputs: tuple of `ArraySpec`.

    Returns:
        list of dicts of arrays by input name, of up to 16 rows each; of as many as the signature takes, if that is fixed.

    Raises:
        QuantizationError: there are no examples, they do not fit the inputs, or no number in them varies, or one is not
            finite.

    Example:

    >>> x = ArraySpec("x", "float32", (None, 2), ("batch", None))
    >>> [len(batch["x"]) for batch in calibration_batches(np.random.default_rng(0).normal(size=(40, 2)), [x])]
    [16, 16, 8]
    """
    found: list[Batch] = []
    try:
        for arrays in named_batches(_renamed(data, inputs), {each.name: len(each.shape) for each in inputs}):
            found += [check_inputs(inputs, part) for part in _parts(arrays, inputs)]
    except (InputError, WeightQuantizationError) as error:
        raise QuantizationError(f"the calibration data do not fit the model: {error}") from error
    if not found:
        raise QuantizationError("the calibration data are empty", Remedy.CALIBRATION, name="FullInt8")
    for name in (each.name for each in inputs):
        if not all(np.isfinite(each[name]).all() for each in found if name in each and each[name].dtype.kind == "f"):
            raise QuantizationError(f"the calibration data have NaN or infinity in '{name}'")
    _check_varies(found)
    return found


def bundle_batches(data: Calibration, manifest: Manifest) -> list[Batch]:
    """Calibration data as batches of the inputs of a bundle's first signature.

    Those of a language model, which has several signatures, are dicts of arrays for any of them, and are not checked here.

    Args:
        data: see `calibration_batches`.
        manifest: `Manifest` of the bundle.

    Raises:
        QuantizationError: see `calibration_batches`.
    """
    if manifest.generation is not None:
        batches = list(data) if isinstance(data, Iterable) else [None]
        if not all(isinstance(each, Mapping) for each in batches):
            raise QuantizationError("the calibration data of a language model are dicts of arrays by input name")
        return [dict(each) for each in cast("list[Batch]", batches)]
    return calibration_batches(data, next(iter(manifest.signatures.values())).inputs)


def _renamed(data: Calibration, inputs: Sequence[ArraySpec]) -> Calibration:
    """Data by the names of the inputs in the bundle, where they are dicts by those of the Keras model."""
    if isinstance(data, list):
        return [_renamed(each, inputs) for each in data]
    if not isinstance(data, Mapping):
        return data
    names = [each.name for each in inputs]
    return {own_name(name, names): array for name, array in data.items()}


def _parts(arrays: Batch, inputs: Sequence[ArraySpec]) -> Iterator[Batch]:
    """The parts of a batch with the number of rows that a signature takes, or that are run at once."""
    firsts = {(each.axes[0], each.shape[0]) for each in inputs if each.axes}
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    axis, size = next(iter(firsts), ("", 0))
    if len(firsts) != 1 or len(counts) != 1 or axis not in (None, _AXIS):
        yield arrays  # No rows, or a fault that `check_inputs` names.
        return
    (count,) = counts
    rows = size or _ROWS
    if size and 0 < count < size:
        arrays, count = {name: np.resize(array, (size, *array.shape[1:])) for name, array in arrays.items()}, size
    for start in range(0, count - (size or 1) + 1, rows):
        yield {name: array[start : start + rows] for name, array in arrays.items()}


def _check_varies(batches: Sequence[Batch]) -> None:
    """Refuses data of which all numbers are the same."""
    floats = [name for name, array in batches[0].items() if array.dtype.kind == "f" and array.size > 1]
    ends = {
        name: (
            min(each[name].min(initial=np.inf) for each in batches),
            max(each[name].max(initial=-np.inf) for each in batches),
        )
        for name in floats
    }
    if ends and all(least == most for least, most in ends.values()):
        name, (least, _) = next(iter(ends.items()))
        raise QuantizationError(
            f"the calibration data are constant: '{name}' is {least:.6g} throughout",
            Remedy.CALIBRATION,
            name="FullInt8",
        )
