"""Memory and time of training and decoding, on one device and on many."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.backend import keras_private
from keras_transformer.blocks.block import Block
from keras_transformer.planning.devices import Device
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.options import OPTIMIZER_SLOTS, check_name, check_sizes
from keras_transformer.planning.repeated_blocks import Groups, find_groups
from keras_transformer.planning.sharding import Sharding
from keras_transformer.planning.step_cost import decoding_step, training_step
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.recomputation import recompute_blocks

_ALL_REDUCES_PER_BLOCK = 4  # After attention and after the feed-forward, forward and backward.


class Plan(NamedTuple):
    """Memory and time of training and decoding, per device.

    Attributes:
        parameters: of the whole model.
        weights: bytes, in the dtypes of training.
        gradients: bytes.
        optimizer: bytes of its state.
        activations: bytes that the forward pass stores for the backward pass.
        training: peak bytes of a step: all of the above and temporary tensors.
        flops: FLOPs of the matrix products of a step, of all devices together.
        step: seconds of a training step, with communication.
        exchange: seconds of communication between the devices.
        tokens: tokens (or inputs, if they have no length) per second in training, of all devices together.
        cache: bytes of the cache for `length` tokens; None if the model does not decode.
        decoding: bytes of weights in the compute dtype, cache and one decoding step; None if the model does not decode.
        token: seconds of one decoding step; None if the model does not decode.

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


def plan(
    model: keras.Model,
    device: Device,
    *,
    batch_size: int = 1,
    length: int = 1024,
    devices: int = 1,
    model_parallel: int = 1,
    optimizer: str = "adamw",
    accumulate: bool = False,
    recompute: int = 0,
    efficiency: float = 0.5,
) -> Plan:
    """Estimates the memory and time of training and decoding, counted in the traced graphs of one device's share.

    Matrix products take `flops / (efficiency · peak)`, everything else `bytes / (efficiency · bandwidth)`; each node takes
    the longer of the two. Devices reduce gradients, and with `model_parallel` activations, in rings that do not overlap with
    compute.

    Args:
        model: `keras.Model` of this package; its weights need no values: see `build`.
        device: `Device`.
        batch_size: int >= 1. Sequences per replica.
        length: int >= 1. Tokens per sequence; for decoding, tokens in the cache.
        devices: int >= 1.
        model_parallel: int >= 1, a divisor of `devices`. The number of devices that share the weights of a replica, as
            `models.layout_map` splits them.
        optimizer: a name in `OPTIMIZER_SLOTS`.
        accumulate: bool. Whether gradients are accumulated, which stores one more value per weight.
        recompute: int. `every` of `training.recompute_blocks`; 0 for no recomputation.
        efficiency: float in (0, 1]. The fraction of its peak that a device reaches.

    Returns:
        `Plan`.

    Raises:
        PlanningError: `model_parallel` does not divide `devices`, an argument is out of its range, or the optimizer unknown.
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
    check_sizes(batch_size, length, devices, model_parallel, efficiency)
    _set_recompute(model, recompute)
    sharding = Sharding(model, model_parallel)
    used = device._replace(tflops=device.tflops * efficiency, bandwidth=device.bandwidth * efficiency)
    groups = find_groups(model)
    step = training_step(model, batch_size, length, device.fuses, sharding, groups)
    dtype = keras.backend.standardize_dtype(model.compute_dtype)
    weights, gradients = sharding.bytes_of(model.variables), sharding.bytes_of(model.trainable_variables)
    slots = (OPTIMIZER_SLOTS[optimizer] + bool(accumulate)) * gradients
    replicas = devices // model_parallel
    exchange = _exchange(model, device, sharding, replicas, gradients, batch_size * length, dtype)
    update = (3 * gradients + 2 * slots) / (used.bandwidth * 1e9)
    seconds = step.seconds(used, dtype) + update + exchange
    cache, decoding, token = _decoding(model, used, sharding, groups, batch_size, length, dtype)
    return Plan(
        parameters=model.count_params(),
        weights=weights,
        gradients=gradients,
        optimizer=slots,
        activations=step.kept,
        training=weights + slots + step.peak,
        flops=round(step.flops * devices),
        step=seconds,
        exchange=exchange,
        tokens=replicas * batch_size * (length if _has_length(model) else 1) / seconds,
        cache=cache,
        decoding=decoding,
        token=token,
    )


def _set_recompute(model: keras.Model, every: int) -> None:
    if every or any(getattr(layer, "recompute", False) for layer in keras_private.flatten_layers(model)):
        recompute_blocks(model, every)


def _exchange(
    model: keras.Model, device: Device, sharding: Sharding, replicas: int, gradients: float, tokens: int, dtype: str
) -> float:
    """Returns the seconds of the all-reduces: of gradients, and of activations if devices share weights."""
    link = device.link * 1e9 / 2
    if replicas * sharding.parts > 1 and not link:
        raise PlanningError("the link of this processor to others is not known: name a device")
    exchanged = _ring(replicas) * gradients
    if sharding.parts > 1:
        blocks = sum(isinstance(layer, Block) for layer in model.layers)
        size = 4 if dtype == "float32" else 2
        exchanged += (
            _ring(sharding.parts) * _ALL_REDUCES_PER_BLOCK * blocks * tokens * max(sharding.widths, default=0) * size
        )
    return exchanged / link if exchanged else 0.0


def _ring(devices: int) -> float:
    """Returns the bytes that each device sends in a ring all-reduce, per byte of the result."""
    return 2 * (devices - 1) / devices


def _decoding(
    model: keras.Model,
    device: Device,
    sharding: Sharding,
    groups: Groups | None,
    batch_size: int,
    length: int,
    dtype: str,
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Returns the bytes of the cache, all bytes, and the seconds of a step; three None if the model does not decode."""
    if not isinstance(model, LanguageModel) or model.is_encoder_decoder:
        return None, None, None
    step, cache = decoding_step(model, batch_size, length, device.fuses, sharding, groups)
    size = 4 if dtype == "float32" else 2
    weights = sharding.bytes_of(model.variables, size)
    cache /= sharding.parts if sharding.splits_cache else 1
    return cache, weights + cache + step.peak, step.seconds(device, dtype)


def _has_length(model: keras.Model) -> bool:
    return any(None in tensor.shape[1:] for tensor in model.inputs)
