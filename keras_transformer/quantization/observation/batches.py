"""Batches of data as dicts of arrays by input name, from any of the forms in which data come. Keras is not imported."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.utils.types import ArrayLike

# Data may be without end, as those of `Dataset.repeat` are.
MOST_BATCHES = 1000


@runtime_checkable
class _Sequence(Protocol):
    """A `keras.utils.PyDataset`, which may go on without end: its number of batches is None then."""

    num_batches: int | None

    def __getitem__(self, index: int, /) -> object: ...


def named_batches(data: object, ranks: Mapping[str, int]) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of a model in batches.

    Args:
        data: one batch, or batches: a list or any other iterable of them, a generator, a `tf.data.Dataset`, a
            `keras.utils.PyDataset`, or a function without arguments that returns an iterable, as TFLite's
            `representative_dataset`. A batch is a dict of arrays by input name; an array, of a model with one input; a list
            or tuple of arrays in the order of the inputs; or a tuple `(x, y)` or `(x, y, sample_weight)`, as `fit` takes
            it, of which x counts. An array with one axis less is one example. Of more than `MOST_BATCHES` batches, the
            first count.
        ranks: dict of the name of each input to the number of its axes, in the order of the inputs.

    Yields:
        Dicts of arrays by input name, whose shapes and types are not checked but for a missing first axis.

    Raises:
        WeightQuantizationError: the data are in none of these forms, or a batch has other inputs.

    Example:

    >>> rows, labels = np.ones((4, 3)), np.zeros(4)
    >>> [batch["x"].shape for batch in named_batches((rows, labels), {"x": 2})]
    [(4, 3)]
    >>> [batch["x"].shape for batch in named_batches(lambda: ([row] for row in rows[:2]), {"x": 2})]
    [(1, 3), (1, 3)]
    """
    for item in itertools.islice(_items(data, len(ranks)), MOST_BATCHES):
        inputs = _inputs(item, len(ranks))
        named = inputs if isinstance(inputs, Mapping) else dict(zip(ranks, inputs, strict=False))
        if named.keys() != ranks.keys() or not isinstance(inputs, Mapping) and len(inputs) != len(ranks):
            found = sorted(map(str, inputs)) if isinstance(inputs, Mapping) else f"{len(inputs)} arrays"
            raise WeightQuantizationError(f"a batch has {found}; the model's inputs are {sorted(ranks)}")
        arrays = {name: np.asarray(named[name]) for name in ranks}
        yield {name: array[None] if array.ndim == ranks[name] - 1 else array for name, array in arrays.items()}


def _items(data: object, count: int) -> Iterator[object]:
    """The batches of data for a number of inputs, as they are."""
    if callable(data) and not _is_array(data):
        data = data()
    is_list_of_inputs = isinstance(data, list) and count > 1 and len(data) == count and all(map(_is_array, data))
    is_as_in_fit = isinstance(data, tuple) and not all(isinstance(each, Mapping) for each in data)
    if isinstance(data, Mapping) or _is_array(data) or is_list_of_inputs or is_as_in_fit:
        return iter([data])
    if isinstance(data, _Sequence):
        return map(data.__getitem__, range(data.num_batches or MOST_BATCHES))
    if not isinstance(data, Iterable):
        raise WeightQuantizationError(f"data must be arrays or batches of them. Received: {type(data).__name__}")
    return iter(data)


def _inputs(item: object, count: int) -> Mapping[str, ArrayLike] | list[ArrayLike]:
    """The inputs in a batch, by name or in their order, without labels and weights."""
    if isinstance(item, Mapping):
        return item
    if _is_array(item) or not isinstance(item, (list, tuple)) or len(item) == 0:
        return [item]
    if not _is_array(item[0]):
        return _inputs(item[0], count)
    return [item[0]] if count == 1 and len(item) <= 3 else list(item)


def _is_array(value: object) -> bool:
    """Whether a value is an array, or numbers or texts in lists."""
    if hasattr(value, "shape") or isinstance(value, (str, bytes, bool, int, float)):
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_plain(each) for each in value)


def _is_plain(value: object) -> bool:
    """Whether a value is numbers or texts, in lists or not."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_plain, value))
    return isinstance(value, (str, bytes, bool, int, float, np.generic))
