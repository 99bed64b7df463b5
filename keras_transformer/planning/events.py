"""The events of a step in their order: operations, and memory that is allocated and freed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Event(NamedTuple):
    """What one node of a graph does.

    Attributes:
        operations: `(flops, bytes)` of its matrix products and of what it reads and writes; several for a loop.
        allocated: bytes of its outputs, without an input that it overwrites.
        workspace: bytes that it needs only while it runs.
        freed: bytes that nothing reads after it.
    """

    operations: tuple[tuple[float, float], ...] = ()
    allocated: float = 0.0
    workspace: float = 0.0
    freed: float = 0.0


class Events(NamedTuple):
    """The events of a step.

    Attributes:
        forward: list of `Event` of the forward pass.
        backward: list of `Event` of the backward pass; empty without one.

    Example:

    >>> Events([Event(allocated=3.0), Event(allocated=2.0, freed=1.0)], [Event(freed=4.0)]).memory()
    (5.0, 4.0)
    """

    forward: list[Event]
    backward: list[Event]

    def memory(self) -> tuple[float, float]:
        """Returns `(peak, kept)`: the largest number of allocated bytes, and that between the two passes."""
        kept, forward_peak = _run(self.forward, 0.0)
        _, backward_peak = _run(self.backward, kept)
        return max(forward_peak, backward_peak), kept if self.backward else 0.0

    def operations(self) -> list[tuple[float, float]]:
        """Returns the operations of all events."""
        return [each for event in (*self.forward, *self.backward) for each in event.operations]

    def repeated(self, longer: Events, times: int) -> Events | None:
        """Returns the events of a step with more equal blocks.

        Args:
            longer: the events of this step with one more group of blocks.
            times: int >= 1. How many more groups the returned events have.

        Returns:
            `Events`; None if the further group changes more than it adds in one place of each pass.
        """
        forward = _repeated(self.forward, longer.forward, times)
        backward = _repeated(self.backward, longer.backward, times)
        return None if forward is None or backward is None else Events(forward, backward)


def _run(events: Iterable[Event], now: float) -> tuple[float, float]:
    """Returns the bytes that are allocated after the events, and the largest number."""
    peak = now
    for event in events:
        now += event.allocated
        peak = max(peak, now + event.workspace)
        now -= event.freed
    return now, peak


def _repeated(shorter: list[Event], longer: list[Event], times: int) -> list[Event] | None:
    """Repeats the one run of events that `longer` has and `shorter` has not; None if they differ in more than it."""
    added = len(longer) - len(shorter)
    if added < 0:
        return None
    pairs = enumerate(zip(shorter, longer, strict=False))
    start = next((index for index, (one, other) in pairs if one != other), len(shorter))
    if shorter[start:] != longer[start + added :]:
        return None
    return shorter[:start] + longer[start : start + added] * times + shorter[start:]
