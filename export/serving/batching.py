"""Request batching: its options, and whether a signature supports it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    from keras_transformer.export.data.array_spec import ArraySpec


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
