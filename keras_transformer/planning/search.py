"""The fastest splits of a training over devices."""

from __future__ import annotations

from collections.abc import Iterator

import keras

from keras_transformer.planning.devices import Device
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.planner import Planner
from keras_transformer.planning.plans import Plan, make_plan
from keras_transformer.planning.split import Split, describe

_MOST_TENSOR = 8  # Further devices share a layer with little gain, even where a link joins more.
_MOST_DEVICES = 65_536


def search(
    model: keras.Model,
    device: Device,
    devices: int,
    *,
    batch_size: int,
    length: int = 1024,
    optimizer: str = "adamw",
    fused_attention: bool = False,
    loss_chunk: int | None = None,
    efficiency: float | None = None,
    count: int = 5,
) -> list[Plan]:
    """Returns the fastest plans of a training that fit into the memory of the devices.

    All splits into replicas, devices that share layers (1 to 8 of a node), and stages of a pipeline are tried, with ZeRO of
    stage 0, 1 or 3, with and without recomputation, and with the micro batches of 1, 2, 4, ... sequences.

    Args:
        model: `keras.Model` of this package; its weights need no values: see `build`.
        device: `Device`.
        devices: int >= 1.
        batch_size: int >= 1. Sequences of a step, of all devices together.
        length: int >= 1. Tokens per sequence.
        optimizer: a name in `OPTIMIZER_SLOTS`.
        fused_attention: see `plan`.
        loss_chunk: see `plan`.
        efficiency: see `plan`.
        count: int. The largest number of plans returned: the best one of each split into replicas, layers and stages.

    Returns:
        list of `Plan`, the fastest first, without the costs of decoding.

    Raises:
        PlanningError: none fits; the message has the smallest, and the number of devices with which one fits.

    Example:

    >>> from keras_transformer import models, planning
    >>> model = models.GPT2(models.Size(8, 8, 2, 16), 50, max_sequence_length=16)
    >>> best, *others = search(model, planning.get_device("a100"), 4, batch_size=8, length=16)
    >>> best.split.devices, all(best.step <= other.step for other in others)
    (4, True)
    """
    planner = Planner(
        model,
        device.at(efficiency),
        length=length,
        optimizer=optimizer,
        fused_attention=fused_attention,
        loss_chunk=loss_chunk,
        reuse=True,
    )
    plans = list(_plans(planner, devices, batch_size))
    fitting = sorted((plan for plan in plans if _fits(plan, device)), key=lambda plan: (plan.step, plan.training))
    if not fitting:
        raise PlanningError(_refusal(planner, device, devices, batch_size, plans))
    best: dict[tuple[int, ...], Plan] = {}
    for plan in fitting:
        best.setdefault(plan.split[:3], plan)
    return list(best.values())[:count]


def _fits(plan: Plan, device: Device) -> bool:
    return plan.training <= device.memory * 1e9


def _plans(planner: Planner, devices: int, batch_size: int) -> Iterator[Plan]:
    for split in _splits(planner, devices, batch_size):
        yield make_plan(planner.model, split, planner.training(split, batch_size // split.data))


def _splits(planner: Planner, devices: int, batch_size: int) -> Iterator[Split]:
    """Yields all splits that divide the devices and the batch."""
    stages = max(1, planner.block_count)
    for tensor in _powers(min(_MOST_TENSOR, planner.device.node, devices)):
        for pipeline in _powers(stages):
            data, rest = divmod(devices, tensor * pipeline)
            if rest or not data or batch_size % data:
                continue
            for zero in (0, 1, 3) if data > 1 else (0,):
                for micro_batch in _powers(batch_size // data):
                    if (batch_size // data) % micro_batch or (zero == 3 and pipeline > 1):
                        continue
                    yield from (Split(data, tensor, pipeline, zero, micro_batch, every) for every in (0, 1))


def _powers(most: int) -> list[int]:
    return [2**exponent for exponent in range(most.bit_length())]


def _refusal(planner: Planner, device: Device, devices: int, batch_size: int, plans: list[Plan]) -> str:
    if not plans:
        return f"a batch of {batch_size} does not divide over {devices} devices"
    least = min(plan.training for plan in plans) / 1e9
    message = f"no split of {devices} devices fits: the smallest needs {least:,.1f} GB of {device.memory:g} GB on each"
    more = devices
    while more < _MOST_DEVICES:
        more *= 2
        found = (plan for plan in _plans(planner, more, batch_size * more // devices) if _fits(plan, device))
        if (fitting := min(found, key=lambda plan: plan.step, default=None)) is not None:
            return f"{message}; {more:,} devices fit, as {describe(fitting.split)}"
    return message
