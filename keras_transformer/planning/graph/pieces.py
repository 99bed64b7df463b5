"""The passes of a step in pieces: before, of and after the equal blocks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.planning.graph.events import Event, Events
from keras_transformer.planning.graph.operations import Operation


class Run(NamedTuple):
    """Events one after another.

    Attributes:
        operations: `Operation`: all together.
        memory: float array (3, number of events): bytes allocated, needed while the event runs, and freed.

    Example:

    >>> Run.of([Event(allocated=3.0), Event(allocated=2.0, freed=1.0)]).peak()
    (5.0, 4.0)
    """

    operations: Operation
    memory: np.ndarray

    @classmethod
    def of(cls, events: Sequence[Event]) -> Run:
        """Returns the run of some events."""
        total = Operation.sum(operation for event in events for operation in event.operations)
        return cls(total, np.array([event[1:] for event in events], "float64").reshape(-1, 3).T)

    def peak(self) -> tuple[float, float]:
        """Returns the largest number of bytes that are allocated, and that after the events, from none."""
        allocated, workspace, freed = self.memory
        after = np.cumsum(allocated - freed)
        during = after + freed + workspace
        return float(max(0.0, during.max(initial=0.0))), float(after[-1]) if len(after) else 0.0

    def line(self, other: Run, position: float, start: float, constant: float) -> Run:
        """Returns the run at a position on the line from this one (0) to another (1).

        Args:
            other: a run of the same operations.
            position: float.
            start: float. The position of a batch of 0, whose memory is that of weights and gradients.
            constant: float. The fraction of the memory at `start` that is counted.
        """
        both = zip(self.operations, other.operations, strict=True)
        steps = other.memory - self.memory
        memory = self.memory + steps * position - (1 - constant) * (self.memory + steps * start)
        return Run(Operation(*(one + (two - one) * position for one, two in both)), memory)


class Part(NamedTuple):
    """The two passes of a part of a model.

    Attributes:
        forward: `Run`.
        backward: `Run`.
    """

    forward: Run
    backward: Run

    @classmethod
    def of(cls, events: Events) -> Part:
        """Returns the part of some events."""
        return cls(*map(Run.of, events))


_NOTHING = Part.of(Events([], []))


class Pieces(NamedTuple):
    """The costs of a step in pieces, for any number of equal blocks.

    Attributes:
        before: `Part` before the blocks, such as an embedding; the whole model if it has no equal blocks.
        block: `Part` of one block.
        after: `Part` behind the blocks, such as a head.
        num_blocks: int. The number of blocks.
        held: blocks whose events are not those of the others, and which are therefore inside `before` or `after`:
            `((before, after) of the forward pass, (before, after) of the backward pass)`.
    """

    before: Part
    block: Part = _NOTHING
    after: Part = _NOTHING
    num_blocks: int = 0
    held: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def passes(self, first: bool = True, blocks: int | None = None, last: bool = True) -> tuple[Pass, Pass]:
        """Returns the forward and the backward `Pass` of a stage.

        Args:
            first: whether the stage has what is before the blocks.
            blocks: its number of blocks; None for all.
            last: whether it has what is behind the blocks.
        """
        number = self.num_blocks if blocks is None else blocks
        forward_times, backward_times = (max(0, number - first * one - last * other) for one, other in self.held)
        before = self.before if first else _NOTHING
        after = self.after if last else _NOTHING
        return (
            Pass([(before.forward, 1), (self.block.forward, forward_times), (after.forward, 1)]),
            Pass([(after.backward, 1), (self.block.backward, backward_times), (before.backward, 1)]),
        )

    def line(self, other: Pieces, position: float, start: float, weights: float, gradients: float) -> Pieces:
        """Returns the pieces at a position on the line to others: see `Run.line`.

        Args:
            other: `Pieces` with the same operations.
            position: float.
            start: float.
            weights: fraction of the memory of copies of weights that is counted.
            gradients: fraction of the memory of gradients that is counted.
        """
        constants = (weights, min(weights, gradients))
        before, block, after = (
            Part(*(a.line(b, position, start, c) for a, b, c in zip(one, two, constants, strict=True)))
            for one, two in zip(self[:3], other[:3], strict=True)
        )
        return Pieces(before, block, after, self.num_blocks, self.held)

    def is_like(self, other: Pieces) -> bool:
        """Returns whether other pieces have the same operations."""
        shapes = ([run.memory.shape for part in pieces[:3] for run in part] for pieces in (self, other))
        return next(shapes) == next(shapes) and self[3:] == other[3:]


class Pass:
    """Runs one after another, each a number of times.

    Args:
        runs: list of `(Run, times)`.

    Example:

    >>> Pass([(Run.of([Event(allocated=3.0), Event(allocated=2.0, freed=1.0)]), 2)]).memory()
    (9.0, 8.0)
    """

    def __init__(self, runs: list[tuple[Run, int]]) -> None:
        self.runs = [(run, times) for run, times in runs if times and run.memory.size]

    def memory(self, allocated: float = 0.0) -> tuple[float, float]:
        """Returns `(peak, after)`: the largest number of bytes, from `allocated` bytes before, and that after the runs."""
        peak = now = allocated
        for run, times in self.runs:
            top, change = run.peak()
            peak = max(peak, now + top, now + (times - 1) * change + top)
            now += times * change
        return peak, now

    def operations(self) -> Operation:
        """Returns all operations together."""
        return Operation.sum(run.operations.times(times) for run, times in self.runs)


def divide(shorter: Events, longer: Events, blocks: int, count: int) -> Pieces | None:
    """Divides the events of a step at its equal blocks.

    Args:
        shorter: `Events` of the step with few of the blocks.
        longer: of the step with one block more.
        blocks: int. The number of blocks of `shorter`.
        count: int. The number of blocks of the whole model.

    Returns:
        `Pieces`; None if the further block changes more than it adds in one place of each pass.
    """
    forward = _divide(shorter.forward, longer.forward, blocks)
    backward = _divide(shorter.backward, longer.backward, blocks)
    if forward is None or backward is None:
        return None
    # The first blocks run first in the forward pass, and last in the backward pass.
    before, after = Events(forward.head, backward.tail), Events(forward.tail, backward.head)
    block = Part.of(Events(forward.block, backward.block))
    return Pieces(Part.of(before), block, Part.of(after), count, (forward.odd, (backward.odd[1], backward.odd[0])))


class _Division(NamedTuple):
    """A pass with equal blocks: events in front of them, one block, events behind them, and the blocks inside these two."""

    head: list[Event]
    block: list[Event]
    tail: list[Event]
    odd: tuple[int, int]


def _divide(shorter: list[Event], longer: list[Event], blocks: int) -> _Division | None:
    """Finds the one run of events that `longer` has and `shorter` has not; None if they differ in more than it."""
    added = len(longer) - len(shorter)
    if added < 0:
        return None
    pairs = enumerate(zip(shorter, longer, strict=False))
    start = next((index for index, (one, other) in pairs if one != other), len(shorter))
    if shorter[start:] != longer[start + added :]:
        return None
    block = longer[start : start + added]
    same = 0
    while same < blocks and shorter[max(0, start - (same + 1) * added) : start - same * added] == block:
        same += 1
    head, tail = shorter[: start - same * added], shorter[start:]
    flops = _flops(block)
    behind = min(blocks - same, int(_flops(tail) / flops)) if flops else 0
    return _Division(head, block, tail, (blocks - same - behind, behind))


def _flops(events: list[Event]) -> float:
    return sum(operation.flops for event in events for operation in event.operations)
