"""Request batching: its options, whether a signature supports it, and the execution of requests of equal shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import ExportError, RunError

if TYPE_CHECKING:
    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.export.runtime.runtime_model import RuntimeModel


@dataclasses.dataclass(frozen=True)
class Batching:
    """Options of request batching in a server.

    Args:
        max_batch_size: int >= 1: largest number of examples in a batch. Default 32.
        wait_ms: float >= 0: milliseconds that the first request of a batch waits for others. Default 2.
        max_waiting: int >= 1: largest number of waiting requests; further ones are rejected. Default 256.

    Raises:
        ExportError: a value is out of range.

    Example:

    >>> Batching(max_batch_size=12).sizes
    [1, 2, 4, 8, 12]
    """

    max_batch_size: int = 32
    wait_ms: float = 2.0
    max_waiting: int = 256

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ExportError(f"{name} must be a positive integer. Received: {value!r}")
        is_number = isinstance(self.wait_ms, (int, float)) and not isinstance(self.wait_ms, bool)
        if not is_number or not 0 <= self.wait_ms < 1e6:
            raise ExportError(f"wait_ms must be a number of milliseconds from 0. Received: {self.wait_ms!r}")

    @property
    def sizes(self) -> list[int]:
        """The batch sizes to prepare: powers of two, and the largest size."""
        powers = (2**power for power in range(self.max_batch_size.bit_length()))
        return sorted({*(size for size in powers if size <= self.max_batch_size), self.max_batch_size})

    @property
    def wait_microseconds(self) -> int:
        """`wait_ms` in microseconds."""
        return round(1000 * self.wait_ms)


def why_alone(inputs: Iterable[ArraySpec], outputs: Iterable[ArraySpec]) -> str | None:
    """Returns why a signature does not support batching.

    Args:
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.

    Returns:
        str that names an input or output whose first axis is not `batch`, or None.
    """
    for side, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            if spec.axes[:1] != ("batch",):
                return f"{side} '{spec.name}' does not have 'batch' as its first axis: {spec.describe()}"
    return None


def run_batched(
    model: RuntimeModel, requests: Sequence[dict[str, np.ndarray]], max_batch_size: int
) -> tuple[list[dict[str, np.ndarray] | RunError], list[int]]:
    """Runs requests in as few calls as possible; results equal those of separate calls.

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


def _run(model: RuntimeModel, requests: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray] | RunError]:
    if len(requests) == 1:
        return [_alone(model, requests[0])]
    try:
        outputs = model({name: np.concatenate([arrays[name] for arrays in requests]) for name in requests[0]})
    except RunError:
        return [_alone(model, arrays) for arrays in requests]
    ends = np.cumsum([_examples(arrays) for arrays in requests])[:-1]
    pieces = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: pieces[name][index] for name in outputs} for index in range(len(requests))]


def _alone(model: RuntimeModel, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray] | RunError:
    try:
        return model(arrays)
    except RunError as error:
        return error
