"""The events of a step in their order: operations, and memory that is allocated and freed."""

from __future__ import annotations

from typing import NamedTuple

from keras_transformer.planning.graph.operations import Operation


class Event(NamedTuple):
    """What one node of a graph does.

    Attributes:
        operations: tuple of `Operation`; several for a loop.
        allocated: bytes of its outputs, without an input that it overwrites.
        workspace: bytes that it needs only while it runs.
        freed: bytes that nothing reads after it.
    """

    operations: tuple[Operation, ...] = ()
    allocated: float = 0.0
    workspace: float = 0.0
    freed: float = 0.0


class Events(NamedTuple):
    """The events of a step.

    Attributes:
        forward: list of `Event` of the forward pass.
        backward: list of `Event` of the backward pass; empty without one.
    """

    forward: list[Event]
    backward: list[Event]
