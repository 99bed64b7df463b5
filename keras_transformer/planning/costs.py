"""What a training takes on each device: memory, and times of a step."""

from __future__ import annotations

from typing import NamedTuple


class Times(NamedTuple):
    """Seconds of a step by what takes them; they add up to the step.

    Attributes:
        products: matrix products.
        bandwidth: operations that move more than they compute, and the update of the weights.
        exchange: communication that does not hide behind the computation.
        bubble: waiting for the other stages of a pipeline.
    """

    products: float
    bandwidth: float
    exchange: float
    bubble: float

    @property
    def bound(self) -> str:
        """str: the name of the largest."""
        return max(zip(self, self._fields, strict=True))[1]


class Memory(NamedTuple):
    """Bytes of a training on one device: see `Plan`."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    training: float


class Training(NamedTuple):
    """The costs of a training for one split.

    Attributes:
        memory: `Memory` of the device that needs the most.
        times: `Times`.
        exchange: seconds of communication, hidden or not.
        flops: FLOPs of the matrix products of a step, of all devices together.
        utilization: fraction of the peak of all devices that the products of a step without recomputation reach.
        tokens: tokens (or inputs, if they have no length) per second, of all devices together.
    """

    memory: Memory
    times: Times
    exchange: float
    flops: float
    utilization: float
    tokens: float
