"""Operations of a step, and their time on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.planning.devices import Device


class Operation(NamedTuple):
    """What one operation, or several together, compute and move.

    Attributes:
        flops: FLOPs of matrix products and convolutions.
        moved: bytes read and written, without those inside a fused kernel.
        functions: number of exponentials, tanh and the like.
        kernels: number of kernels.

    Example:

    >>> Operation.sum([Operation(flops=2.0), Operation(flops=3.0, moved=1.0)])
    Operation(flops=5.0, moved=1.0, functions=0.0, kernels=2.0)
    """

    flops: float = 0.0
    moved: float = 0.0
    functions: float = 0.0
    kernels: float = 1.0

    @classmethod
    def sum(cls, operations: Iterable[Operation]) -> Operation:
        """Returns all operations together."""
        columns = zip((0.0, 0.0, 0.0, 0.0), *operations, strict=True)
        return cls(*map(sum, columns))

    def times(self, factor: float) -> Operation:
        """Returns the operations, run a number of times."""
        return Operation(*(factor * each for each in self))


class Seconds(NamedTuple):
    """Time of operations.

    Attributes:
        products: seconds of computing.
        bandwidth: seconds of moving, and of starting kernels.

    Example:

    >>> Seconds(1.0, 2.0).total
    3.0
    """

    products: float = 0.0
    bandwidth: float = 0.0

    @property
    def total(self) -> float:
        """float: the sum."""
        return self.products + self.bandwidth


def seconds(operations: Operation, device: Device, dtype: str = "float32") -> Seconds:
    """Returns the time of operations: of computing, at the rate that the device reaches, and of moving after it.

    A matrix product `(m, k) x (k, n)` therefore reaches `1 / (1 + d (1/m + 1/n + 1/k))` of that rate, where `d` is the
    number of FLOPs in the time of one byte, 150 to 300: small and narrow products reach less, as they do.

    Args:
        operations: of a device.
        device: `Device`.
        dtype: of the products.

    Example:

    >>> device = Device(tflops=1, memory=16, bandwidth=1000, link=32).at(1.0)
    >>> seconds(Operation(flops=2e12, moved=1e12), device, "bfloat16")
    Seconds(products=2.0, bandwidth=1.0)
    """
    reached = device.reached
    rate = device.tflops * 1e12 * reached.products * (device.float32 if dtype == "float32" else 1.0)
    bandwidth = device.bandwidth * 1e9 * reached.bandwidth
    computing = operations.flops / rate + operations.functions / (reached.functions * 1e9)
    return Seconds(computing, operations.moved / bandwidth + operations.kernels * reached.overhead)
