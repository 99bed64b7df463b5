"""Bytes and time of the communication between devices, by the formulas of rings."""

from __future__ import annotations

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.blocks.decoders.parallel_decoder_block import ParallelDecoderBlock
from keras_transformer.feedforward.gated import GatedFeedForward
from keras_transformer.planning.devices import Device
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.split import Split


def gather_bytes(size: float, devices: int) -> float:
    """Returns the bytes that each device sends in a ring all-gather or reduce-scatter.

    Args:
        size: bytes of the whole tensor.
        devices: int >= 1.

    Example:

    >>> gather_bytes(100.0, 4)
    75.0
    """
    return size * (devices - 1) / devices


def reduce_bytes(size: float, devices: int) -> float:
    """Returns the bytes that each device sends in a ring all-reduce: a reduce-scatter and an all-gather.

    Example:

    >>> reduce_bytes(100.0, 4)
    150.0
    """
    return 2 * gather_bytes(size, devices)


def block_sums(block: Block, merged: bool = True) -> tuple[int, int]:
    """Returns how often devices that share the weights of a block sum its hidden states, forward and backward.

    Forward, each sublayer ends in a sum: attention, cross-attention and feed-forward; parallel sublayers share one.
    Backward, each projection that reads the input of a sublayer gives a part of its gradient: three for queries, keys and
    values, two for a gated feed-forward. XLA on GPUs adds these parts before it sums them over the devices, once for each
    norm; without that (`merged=False`), as on CPUs, each is summed alone.

    Args:
        block: `Block`.
        merged: bool.

    Example:

    >>> from keras_transformer.models import Decoder, Size
    >>> block = Decoder(Size(1, 8, 2, 16), vocabulary_size=10).get_layer("decoder_block_0")
    >>> block_sums(block), block_sums(block, merged=False)
    ((2, 2), (2, 4))
    """
    cross, feedforward = (getattr(block, name, None) for name in ("cross_attention", "feedforward"))
    sublayers = 1 + (cross is not None) + (feedforward is not None)
    is_parallel = isinstance(block, ParallelDecoderBlock)
    forward = 1 if is_parallel else sublayers
    if merged:
        return forward, 1 if is_parallel and block.shared_norm else sublayers
    return forward, 3 * (sublayers - (feedforward is not None)) + _projections(feedforward)


def model_sums(model: keras.Model) -> tuple[int, int]:
    """Returns the sums of all blocks of a model, forward and backward: see `block_sums`."""
    sums = [block_sums(layer) for layer in model.layers if isinstance(layer, Block)]
    return sum(forward for forward, _ in sums), sum(backward for _, backward in sums)


def _projections(feedforward: keras.layers.Layer | None) -> int:
    """Returns the number of projections that read the input of a feed-forward."""
    if feedforward is None:
        return 0
    return 2 if isinstance(feedforward, GatedFeedForward) or getattr(feedforward, "gated", False) else 1


def replica_bytes(split: Split, weights: float, gradients: float, micro_batches: int) -> float:
    """Returns the bytes that a device sends to other replicas in a step.

    Stages 0 to 2 of ZeRO sum the gradients, whole or each its part, and then gather the weights: as many bytes as an
    all-reduce if both have the same dtype. Stage 3 gathers the weights for each forward and each backward pass, and reduces
    the gradients after each.

    Args:
        split: `Split`.
        weights: bytes of the weights of one replica on one device, in the dtype in which they are gathered.
        gradients: bytes of the gradients, in the dtype in which they are summed.
        micro_batches: int >= 1.

    Example:

    >>> replica_bytes(Split(data=4), 100.0, 100.0, 1), replica_bytes(Split(data=4, zero=3), 100.0, 100.0, 1)
    (150.0, 225.0)
    """
    if split.zero == 0:
        return reduce_bytes(gradients, split.data)
    passes = micro_batches if split.zero == 3 else 1
    gathers = 2 if split.zero == 3 else 1
    return passes * gather_bytes(gathers * weights + gradients, split.data)


class Fabric:
    """The rates at which the devices of a split communicate, in bytes per second that each sends.

    Args:
        device: `Device`.
        split: `Split`.

    Raises:
        PlanningError: the device has no known link, and there are several.
    """

    def __init__(self, device: Device, split: Split) -> None:
        if split.devices > 1 and not device.link:
            raise PlanningError("the link of this processor to others is not known: name a device")
        self._link = device.link * 1e9 / 2 * device.reached.link
        self._network = device.network * 1e9 / 2 * device.reached.link
        self._node = device.node
        self._split = split

    @property
    def tensor(self) -> float:
        """float: between the devices that share the weights of a layer."""
        return self._rate(self._split.tensor, 1)

    @property
    def replicas(self) -> float:
        """float: between replicas."""
        return self._rate(self._split.data, self._split.tensor)

    @property
    def stages(self) -> float:
        """float: between stages of a pipeline."""
        within = self._split.devices <= self._node
        return self._link if within else min(self._link, self._network)

    def _rate(self, count: int, stride: int) -> float:
        """Returns the rate of a ring of `count` devices, each `stride` after the other.

        A ring that visits all devices of a node before it leaves it uses the network of all of them.
        """
        in_node = max(1, self._node // stride)
        return self._link if count <= in_node else min(self._link, in_node * self._network)
