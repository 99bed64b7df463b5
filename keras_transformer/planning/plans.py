"""Memory and time of training and decoding, on one device and on many."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.planning.costs import Times, Training
from keras_transformer.planning.devices import Device
from keras_transformer.planning.options import OPTIMIZER_SLOTS, check_name, check_sizes
from keras_transformer.planning.planner import Planner
from keras_transformer.planning.split import Split
from keras_transformer.planning.step_cost import decoding_step
from keras_transformer.tasks import LanguageModel


class Plan(NamedTuple):
    """Memory and time of training and decoding, per device.

    Attributes:
        parameters: of the whole model.
        weights: bytes, in the dtypes of training.
        gradients: bytes.
        optimizer: bytes of its state, and of accumulated gradients.
        activations: bytes that the forward pass stores for the backward pass, of all micro batches on the way.
        training: peak bytes of a step: all of the above and temporary tensors.
        flops: FLOPs of the matrix products of a step, of all devices together.
        step: seconds of a training step, with communication.
        exchange: seconds of communication between the devices, also of that which hides behind computation.
        tokens: tokens (or inputs, if they have no length) per second in training, of all devices together.
        cache: bytes of the cache for `length` tokens; None if the model does not decode.
        decoding: bytes of weights in the compute dtype, cache and one decoding step; None if the model does not decode.
        token: seconds of one decoding step; None if the model does not decode.
        utilization: FLOPs of a step without recomputation, as a fraction of what all devices could compute in its time
            (MFU).
        times: `Times`: what takes the seconds of the step.
        split: `Split`: how the devices divide the training.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.GPT2(models.Size(1, 8, 2, 16), 50, max_sequence_length=16))
    >>> costs = plan(model, Device(tflops=100, memory=16, bandwidth=300, link=32), length=16)
    >>> costs.token < costs.step
    True
    """

    parameters: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    training: float
    flops: int
    step: float
    exchange: float
    tokens: float
    cache: float | None
    decoding: float | None
    token: float | None
    utilization: float
    times: Times
    split: Split


def plan(
    model: keras.Model,
    device: Device,
    *,
    batch_size: int = 1,
    length: int = 1024,
    devices: int = 1,
    model_parallel: int = 1,
    pipeline: int = 1,
    zero: int = 0,
    micro_batch: int | None = None,
    recompute: int = 0,
    optimizer: str = "adamw",
    accumulate: bool = False,
    fused_attention: bool = False,
    loss_chunk: int | None = None,
    efficiency: float | None = None,
) -> Plan:
    """Estimates the memory and time of training and decoding, counted in the traced graphs of one device's share.

    Each operation computes and then moves, at the fractions of the peaks in `Device.reached`. The exchange
    between replicas hides behind the computation (see `Split.overlap`); that between devices that share the weights of a
    layer, and the bubble of a pipeline, do not.

    Args:
        model: `keras.Model` of this package; its weights need no values: see `build`.
        device: `Device`.
        batch_size: int >= 1. Sequences per replica.
        length: int >= 1. Tokens per sequence; for decoding, tokens in the cache.
        devices: int >= 1.
        model_parallel: int >= 1. The number of devices that share the weights of each layer, as `models.layout_map` splits
            them.
        pipeline: int >= 1. The number of stages of consecutive blocks; `model_parallel · pipeline` divides `devices`.
        zero: 0, 1, 2 or 3. What the replicas divide among themselves: see `Split`. 3 is fully sharded.
        micro_batch: int >= 1, a divisor of `batch_size`. Sequences that a replica computes at once; None for all.
        recompute: int. `every` of `training.recompute_blocks`; 0 for no recomputation.
        optimizer: a name in `OPTIMIZER_SLOTS`.
        accumulate: bool. Whether gradients are accumulated, which stores one more value per weight.
        fused_attention: bool. Whether attention scores stay inside a kernel, as in FlashAttention.
        loss_chunk: int >= 1, or None. The number of tokens whose logits are computed at a time, as by
            `training.NextTokenTrainer`; None for all of a micro batch.
        efficiency: float in (0, 1]. One fraction of all peaks that a device reaches. Default: those of `Device.reached`.

    Returns:
        `Plan`.

    Raises:
        PlanningError: `model_parallel · pipeline` does not divide `devices`, an argument is out of its range, or the
            optimizer unknown.
        UnknownCostError: the trip count of a loop depends on the inputs.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.GPT2(models.Size(1, 8, 2, 16), 50, max_sequence_length=16))
    >>> device = Device(tflops=100, memory=16, bandwidth=300, link=32)
    >>> costs = plan(model, device, batch_size=2, length=16)
    >>> costs.parameters == model.count_params(), costs.training > costs.weights + costs.optimizer
    (True, True)
    """
    check_name("optimizer", optimizer, tuple(OPTIMIZER_SLOTS))
    check_sizes(batch_size, length, devices, model_parallel * pipeline, efficiency, loss_chunk)
    split = Split(devices // (model_parallel * pipeline), model_parallel, pipeline, zero, micro_batch, recompute)
    planner = Planner(
        model,
        device.at(efficiency),
        length=length,
        optimizer=optimizer,
        accumulate=accumulate,
        fused_attention=fused_attention,
        loss_chunk=loss_chunk,
    )
    decoded = _decoding(planner, split, batch_size)
    return make_plan(model, split, planner.training(split, batch_size), *decoded)


def make_plan(
    model: keras.Model,
    split: Split,
    training: Training,
    cache: float | None = None,
    decoding: float | None = None,
    token: float | None = None,
) -> Plan:
    """Returns the `Plan` of a training."""
    return Plan(
        parameters=model.count_params(),
        **training.memory._asdict(),
        flops=round(training.flops),
        step=sum(training.times),
        exchange=training.exchange,
        tokens=training.tokens,
        cache=cache,
        decoding=decoding,
        token=token,
        utilization=training.utilization,
        times=training.times,
        split=split,
    )


def _decoding(planner: Planner, split: Split, batch_size: int) -> tuple[float, float, float] | tuple[None, None, None]:
    """Returns the bytes of the cache, all bytes, and the seconds of a step; three None if the model does not decode."""
    model, sharding = planner.model, planner.sharding(split)
    if not isinstance(model, LanguageModel) or model.is_encoder_decoder:
        return None, None, None
    step, cache = decoding_step(
        model, batch_size, planner.length, planner.device.fuses, sharding, planner.traces.groups
    )
    size = 4 if planner.dtype == "float32" else 2
    weights = sharding.bytes_of(model.variables, size)
    cache /= sharding.parts if sharding.splits_cache else 1
    return cache, weights + cache + step.peak, step.seconds(planner.device, planner.dtype)
