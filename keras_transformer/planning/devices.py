"""Compute, memory and bandwidth of devices, from their makers' data sheets."""

from __future__ import annotations

import math
from typing import NamedTuple

from keras_transformer.planning.graph.access import Access


class Reached(NamedTuple):
    """What a device reaches of its data sheet in a training, the same for every model.

    Attributes:
        products: fraction of the peak that large matrix products reach.
        bandwidth: fraction of the bandwidth.
        link: fraction of `link` and `network`.
        overhead: seconds per kernel, besides computing and moving.
        functions: 10⁹ exponentials, tanh and the like per second.
        access: `Access`: fractions of that bandwidth by kinds of operations.

    Example:

    >>> Reached().overhead < 1e-5
    True
    """

    products: float = 0.65
    bandwidth: float = 0.8
    link: float = 0.7
    overhead: float = 5e-6
    functions: float = math.inf
    access: Access = Access()


class Device(NamedTuple):
    """The capabilities of one device.

    Attributes:
        tflops: peak of dense matrix products in bfloat16 (float16 where it has no bfloat16), 10¹² operations per second.
        memory: GB (10⁹ bytes).
        bandwidth: GB per second between memory and processor.
        link: GB per second to other devices of the same node, both directions together.
        float32: fraction of `tflops` that products in float32 reach.
        fuses: whether elementwise operations are fused, as by XLA.
        network: GB per second to devices of other nodes, both directions together: the device's share of its node's.
        node: number of devices that `link` connects.
        reached: `Reached`.

    Example:

    >>> Device(tflops=100, memory=16, bandwidth=300, link=32).fuses
    True
    """

    tflops: float
    memory: float
    bandwidth: float
    link: float
    float32: float = 0.5
    fuses: bool = True
    network: float = 25.0
    node: int = 8
    reached: Reached = Reached()

    def at(self, efficiency: float | None) -> Device:
        """Returns the device with the same fraction of all its peaks; None for those of `reached`."""
        if efficiency is None:
            return self
        return self._replace(reached=Reached(efficiency, efficiency, 1.0, 0.0))


# Fractions of the peak that large products reach alone, measured: A100 86 %, B200 78 % (Bekman, Machine Learning
# Engineering, "Maximum achievable matmul FLOPS"), H100 73 % (SemiAnalysis, "MI300X vs H100 vs H200, part 1: training"),
# TPU v4 90 %. A training of days reaches 0.81 of these: `benchmarks/published_trainings.py`, fitted on four trainings.
_SUSTAINED = 0.81
_A100, _B200, _H100, _TPU = (Reached(round(_SUSTAINED * alone, 2)) for alone in (0.86, 0.78, 0.73, 0.9))

DEVICES: dict[str, Device] = {
    "b200": Device(2250, 180, 8000, 1800, network=100, reached=_B200),
    "gh200": Device(989, 96, 4000, 900, network=100, node=1, reached=_H100),
    "h200": Device(989, 141, 4800, 900, network=100, reached=_H100),
    "h100": Device(989, 80, 3350, 900, network=100, reached=_H100),
    "h100 nvl": Device(835, 94, 3900, 600, network=100, node=2, reached=_H100),
    "h100 pcie": Device(756, 80, 2000, 600, network=50, node=2, reached=_H100),
    "a100": Device(312, 80, 2039, 600, network=50, reached=_A100),
    "a40": Device(150, 48, 696, 112, node=2),
    "a30": Device(165, 24, 933, 200, node=2),
    "a10": Device(125, 24, 600, 64),
    "a10g": Device(70, 24, 600, 64),
    "l40": Device(181, 48, 864, 64),
    "l40s": Device(362, 48, 864, 64),
    "l4": Device(121, 24, 300, 64),
    "t4": Device(65, 16, 320, 32, 0.125),
    "v100": Device(125, 32, 900, 300, 0.125),
    "rtx 4090": Device(165, 24, 1008, 64),
    "rtx 3090": Device(71, 24, 936, 64),
    "rtx a6000": Device(155, 48, 768, 112, node=2),
    "rtx 6000 ada": Device(364, 48, 960, 64),
    "tpu v4": Device(275, 32, 1228, 600, node=4096, reached=_TPU),
    "tpu v5 lite": Device(197, 16, 819, 400, node=256, reached=_TPU),
    "tpu v5p": Device(459, 95, 2765, 1200, node=8960, reached=_TPU),
    "tpu v6 lite": Device(918, 32, 1640, 800, node=256, reached=_TPU),
}
