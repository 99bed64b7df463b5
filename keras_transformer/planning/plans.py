"""Memory and time of a training and of decoding, on one device and on many."""

from typing import NamedTuple

import keras

from keras_transformer.backend import keras_private
from keras_transformer.blocks.block import Block
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.graph import decoding_step, training_step
from keras_transformer.planning.split import Split
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.recomputation import recompute_blocks

# Numbers that an optimizer keeps for each weight.
OPTIMIZER_SLOTS = {"sgd": 0, "momentum": 1, "lion": 1, "adam": 2, "adamw": 2}
_EXCHANGES_PER_BLOCK = 4  # Behind attention and behind the feed-forward, forward and backward.


class Plan(NamedTuple):
    """What one of the devices needs: bytes, and seconds.

    Attributes:
        parameters: of the whole model.
        weights: bytes, as they are kept for training.
        gradients: bytes.
        optimizer: bytes.
        activations: bytes that the forward pass keeps for the backward pass.
        training: bytes at the fullest moment of a step, all of the above and what comes and goes among them.
        flops: operations of the products of a step, of all devices together.
        step: seconds of a training step, exchange between the devices included.
        exchange: seconds of that exchange.
        tokens: tokens, or inputs without a length, that all devices train on in a second.
        cache: bytes for the tokens read before, or None where the model does not decode.
        decoding: bytes with which the model decodes: weights in the dtype of its computation, cache, one step.
        token: seconds of one step of decoding, or None.
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
    model,
    device,
    *,
    batch_size=1,
    length=1024,
    devices=1,
    model_parallel=1,
    optimizer="adamw",
    accumulate=False,
    recompute=0,
    efficiency=0.5,
):
    """What training and decoding will take, counted in the traced graphs of one device's share.

    Products take `operations / (efficiency · peak)`, everything else `bytes / (efficiency · bandwidth)`; each node takes the
    longer of the two. Devices exchange gradients, and with `model_parallel` activations, in rings, which nothing hides.

    Args:
        model: `keras.Model` of this package; its weights need no values: see `build`.
        device: `Device`.
        batch_size: int >= 1. Rows that one replica takes at once.
        length: int >= 1. Tokens of a row; for decoding, those read before.
        devices: int >= 1.
        model_parallel: int >= 1, a divisor of `devices`: so many share the weights of a replica, as
            `models.layout_map` splits them.
        optimizer: a name in `OPTIMIZER_SLOTS`.
        accumulate: bool. Whether gradients are accumulated, which takes one number more for each weight.
        recompute: int. As `every` of `training.recompute_blocks`; 0 for none.
        efficiency: float in (0, 1]. What share of its peak a device reaches.

    Returns:
        `Plan`.

    Raises:
        PlanningError: devices that do not divide, or an argument that is out of its range.
        UnknownCostError: a model with a loop that turns as often as what it is fed says.
    """
    if devices % model_parallel or min(batch_size, length, devices, model_parallel) < 1:
        raise PlanningError(f"{devices} devices do not divide into groups of {model_parallel}, or a size is below 1")
    if not 0 < efficiency <= 1:
        raise PlanningError(f"the efficiency must lie in (0, 1]: {efficiency}")
    _set_recompute(model, recompute)
    split = Split(model, model_parallel)
    used = device._replace(tflops=device.tflops * efficiency, bandwidth=device.bandwidth * efficiency)
    step = training_step(model, batch_size, length, device.fuses, split)
    dtype = keras.backend.standardize_dtype(model.compute_dtype)
    weights, gradients = split.bytes_of(model.variables), split.bytes_of(model.trainable_variables)
    slots = (OPTIMIZER_SLOTS[optimizer] + bool(accumulate)) * gradients
    replicas = devices // model_parallel
    exchange = _exchange(model, device, split, replicas, gradients, batch_size * length, dtype)
    update = (3 * gradients + 2 * slots) / (used.bandwidth * 1e9)
    seconds = step.seconds(used, dtype) + update + exchange
    cache, decoding, token = _decoding(model, used, split, batch_size, length, dtype)
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


def _set_recompute(model, every):
    if every or any(getattr(layer, "recompute", False) for layer in keras_private.flatten_layers(model)):
        recompute_blocks(model, every)


def _exchange(model, device, split, replicas, gradients, tokens, dtype):
    """Seconds in which devices exchange gradients, and activations where they share weights; each sends as it receives."""
    link = device.link * 1e9 / 2
    if replicas * split.parts > 1 and not link:
        raise PlanningError("how fast this processor reaches others is not known: name a device")
    exchanged = _ring(replicas) * gradients
    if split.parts > 1:
        blocks = sum(isinstance(layer, Block) for layer in model.layers)
        size = 4 if dtype == "float32" else 2
        exchanged += _ring(split.parts) * _EXCHANGES_PER_BLOCK * blocks * tokens * max(split.widths, default=0) * size
    return exchanged / link if exchanged else 0.0


def _ring(devices):
    """How many times its size each device sends of what all add up."""
    return 2 * (devices - 1) / devices


def _decoding(model, device, split, batch_size, length, dtype):
    """Bytes of the cache, bytes in all, and seconds of a step; None, three times, of a model that does not decode."""
    if not isinstance(model, LanguageModel) or model.is_encoder_decoder:
        return None, None, None
    step, cache = decoding_step(model, batch_size, length, device.fuses, split)
    size = 4 if dtype == "float32" else 2
    weights = split.bytes_of(model.variables, size)
    cache /= split.parts if split.splits_cache else 1
    return cache, weights + cache + step.peak, step.seconds(device, dtype)


def _has_length(model):
    return any(None in tensor.shape[1:] for tensor in model.inputs)
