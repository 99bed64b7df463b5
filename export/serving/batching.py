"""Putting requests together: what a server is told, and whether a signature can be served that way."""

import dataclasses

from keras_transformer.export.errors import ExportError


@dataclasses.dataclass(frozen=True)
class Batching:
    """How a server puts requests together.

    Args:
        max_batch_size: int >= 1: the most examples that are computed at once. Default 32.
        wait_ms: float >= 0: how long the first request of a batch waits for others, in milliseconds. Default 2.
        max_waiting: int >= 1: the most requests that wait; a server refuses further ones. Default 256.

    Raises:
        ExportError: a figure out of range.

    Example:

    >>> Batching(max_batch_size=12).sizes
    [1, 2, 4, 8, 12]
    """

    max_batch_size: int = 32
    wait_ms: float = 2.0
    max_waiting: int = 256

    def __post_init__(self):
        for name in ("max_batch_size", "max_waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ExportError(f"{name} must be a positive integer. Received: {value!r}")
        is_number = isinstance(self.wait_ms, (int, float)) and not isinstance(self.wait_ms, bool)
        if not is_number or not 0 <= self.wait_ms < 1e6:
            raise ExportError(f"wait_ms must be a number of milliseconds from 0. Received: {self.wait_ms!r}")

    @property
    def sizes(self):
        """The sizes of batches worth preparing: powers of two, and the largest."""
        powers = (2**power for power in range(self.max_batch_size.bit_length()))
        return sorted({*(size for size in powers if size <= self.max_batch_size), self.max_batch_size})

    @property
    def wait_microseconds(self):
        return round(1000 * self.wait_ms)


def why_alone(inputs, outputs):
    """Why a signature cannot compute several requests at once.

    Args:
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.

    Returns:
        str that names the input or output without the axis `batch` in front; None where there is none.
    """
    for side, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            if spec.axes[:1] != ("batch",):
                return f"{side} '{spec.name}' has no axis 'batch' in front: {spec.describe()}"
    return None
