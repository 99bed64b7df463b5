"""Batched execution of requests of equal shapes; results equal those of separate execution."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.errors import RunError


def run_batched(
    model: Any, requests: Sequence[dict[str, np.ndarray]], max_batch_size: int
) -> tuple[list[Any], list[int]]:
    """Runs requests in as few calls as possible.

    Requests are batched if only their numbers of examples differ, and the first axis of every input and output is `batch`.
    If a call fails, its requests run one by one, so that only the faulty ones fail.

    Args:
        model: `RuntimeModel`.
        requests: list of dicts of input name to checked array.
        max_batch_size: int >= 1: largest number of examples in a call; a larger request is not batched.

    Returns:
        List of dicts of output name to array, or the `RunError`, in the order of the requests; and
        the list of the sizes of the calls in examples.
    """
    joined = all(spec.axes[:1] == ("batch",) for spec in (*model.inputs, *model.outputs))
    results: list[Any] = [None] * len(requests)
    sizes: list[int] = []
    for group in _groups(requests, max_batch_size) if joined else [[index] for index in range(len(requests))]:
        computed = _run(model, [requests[index] for index in group])
        sizes.append(sum(_examples(requests[index]) for index in group) if joined else 1)
        for index, result in zip(group, computed, strict=True):
            results[index] = result
    return results, sizes


def _groups(requests: Sequence[dict[str, np.ndarray]], max_batch_size: int) -> list[list[int]]:
    """Lists of indices in `requests`."""
    groups: list[list[int]] = []
    open_groups: dict[Any, Any] = {}
    for index, arrays in enumerate(requests):
        key = tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(arrays.items()))
        count, group = open_groups.get(key, (max_batch_size, None))
        if count + _examples(arrays) > max_batch_size:
            count, group = 0, []
            groups.append(group)
        group.append(index)
        open_groups[key] = count + _examples(arrays), group
    return groups


def _examples(arrays: dict[str, np.ndarray]) -> int:
    return len(next(iter(arrays.values())))


def _run(model: Any, requests: Sequence[dict[str, np.ndarray]]) -> list[Any]:
    if len(requests) == 1:
        return [_alone(model, requests[0])]
    try:
        outputs = model({name: np.concatenate([arrays[name] for arrays in requests]) for name in requests[0]})
    except RunError:
        return [_alone(model, arrays) for arrays in requests]
    ends = np.cumsum([_examples(arrays) for arrays in requests])[:-1]
    pieces = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: pieces[name][index] for name in outputs} for index in range(len(requests))]


def _alone(model: Any, arrays: dict[str, np.ndarray]) -> Any:
    try:
        return model(arrays)
    except RunError as error:
        return error
