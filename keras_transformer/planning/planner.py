"""Memory and time of one training for any split over devices."""

from __future__ import annotations

import functools

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.planning.communication import Fabric, model_sums, reduce_bytes, replica_bytes
from keras_transformer.planning.costs import Memory, Times, Training
from keras_transformer.planning.devices import Device
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.graph.counting import Kernels
from keras_transformer.planning.graph.pieces import Pieces
from keras_transformer.planning.graph.repeated_blocks import find_groups
from keras_transformer.planning.graph.stages import Stage, Weights, blocks_of_stages, make_stage
from keras_transformer.planning.graph.traces import Traces
from keras_transformer.planning.options import DECAYING, OPTIMIZER_SLOTS, UNFUSED_PASSES
from keras_transformer.planning.sharding import Sharding
from keras_transformer.planning.split import Split, check_split

_GATHERED_BLOCKS = 2  # Of fully sharded weights: the block that computes and the one that comes next.


class Planner:
    """Plans one training for any split over devices. The model is traced once for all.

    Args:
        model: `keras.Model` of this package; its weights need no values: see `build`.
        device: `Device`.
        length: int >= 1. Tokens per sequence.
        optimizer: a name in `OPTIMIZER_SLOTS`.
        accumulate: bool. Whether gradients are accumulated, as they are anyway if there are several micro batches.
        fused_attention: bool. Whether attention scores stay inside a kernel, as in FlashAttention.
        loss_chunk: int, or None. Tokens whose logits are computed at a time: see `training_graph`.
        reuse: bool. Whether the costs of all batch sizes come from two small batches, which saves time if there are many.

    Example:

    >>> from keras_transformer import models, planning
    >>> model = models.GPT2(models.Size(8, 8, 2, 16), 50, max_sequence_length=16)
    >>> planner = Planner(model, planning.get_device("a100"), length=16)
    >>> one, two = (planner.training(Split(pipeline=stages, micro_batch=1), 8) for stages in (1, 2))
    >>> two.memory.weights < one.memory.weights, two.times.bubble > one.times.bubble == 0
    (True, True)
    """

    def __init__(
        self,
        model: keras.Model,
        device: Device,
        *,
        length: int,
        optimizer: str = "adamw",
        accumulate: bool = False,
        fused_attention: bool = False,
        loss_chunk: int | None = None,
        reuse: bool = False,
    ) -> None:
        self.model = model
        self.device = device
        self.length = length
        self.dtype = keras.backend.standardize_dtype(model.compute_dtype)
        self._slots, self._accumulate = OPTIMIZER_SLOTS[optimizer], bool(accumulate)
        self._passes = 3 + 2 * self._slots if device.fuses else UNFUSED_PASSES[optimizer]
        self._copies = not device.fuses and optimizer in DECAYING
        self._reuse = reuse
        scores = _lengths(model, length) if fused_attention else frozenset()
        self.kernels = Kernels(device.fuses, scores, device.reached.access)
        self.traces = Traces(model, length, self.kernels, find_groups(model), loss_chunk)
        self._sharding = functools.cache(functools.partial(Sharding, model))
        self._stage = functools.cache(self._make_stage)
        self._flops = functools.cache(self._count_flops)
        self._computed_share = functools.cache(self._share_in_compute_dtype)
        self._stage_weights = functools.cache(self._bytes_of_stage)

    @functools.cached_property
    def _weights(self) -> Weights:
        return Weights.of(self.model, self.traces.groups)

    @property
    def block_count(self) -> int:
        """int: the number of equal blocks, the largest number of stages of a pipeline; 0 if the model has none."""
        return self.traces.groups.count if self.traces.groups else 0

    def sharding(self, split: Split) -> Sharding:
        """Returns the share of the weights that a device of a split has."""
        return self._sharding(split.tensor, split.sequence)

    def training(self, split: Split, batch_size: int) -> Training:
        """Returns the costs of a training.

        Args:
            split: `Split`.
            batch_size: int >= 1. Sequences per replica in a step.

        Raises:
            PlanningError: a micro batch that does not divide the batch; more stages than equal blocks.
        """
        check_split(split)
        micro_batches = split.micro_batches(batch_size)
        micro_batch = batch_size // micro_batches
        stages = self._stages(split, micro_batch)
        memory = max(
            (self._memory(split, stage, index, micro_batches) for index, stage in stages.items()),
            key=lambda each: each.training,
        )
        times, exchange = self._times(split, stages, micro_batch, micro_batches)
        step = sum(times)
        replicas = split.data * split.tensor * micro_batches
        useful = self._flops(split._replace(recompute=0), micro_batch) * replicas
        tokens = split.data * batch_size * (self.length if self._has_length else 1)
        return Training(
            memory=memory,
            times=times,
            exchange=exchange,
            flops=self._flops(split, micro_batch) * replicas,
            utilization=useful / (step * split.devices * self._peak),
            tokens=tokens / step,
        )

    @property
    def _peak(self) -> float:
        return self.device.tflops * 1e12 * (self.device.float32 if self.dtype == "float32" else 1.0)

    @property
    def _item_size(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @functools.cached_property
    def _has_length(self) -> bool:
        return any(None in tensor.shape[1:] for tensor in self.model.inputs)

    def _pieces(self, split: Split, micro_batch: int) -> Pieces:
        sharding, shares = self.sharding(split), split.shares()
        if not self._reuse and shares["gradients"] == 1:
            return self.traces.pieces(micro_batch, split.recompute, sharding)
        parts = (1 / shares["gradients"], 1 / shares["weights"])
        return self.traces.scaled(micro_batch, split.recompute, sharding, *parts)

    def _count_flops(self, split: Split, micro_batch: int) -> float:
        return sum(each.operations().flops for each in self._pieces(split, micro_batch).passes())

    def _stages(self, split: Split, micro_batch: int) -> dict[int, Stage]:
        """Returns the stages that may need the most time or memory: the first, the second and the last, by index."""
        pieces = self._pieces(split, micro_batch)
        if split.pipeline > max(1, pieces.num_blocks):
            raise PlanningError(
                f"a pipeline of {split.pipeline} stages needs as many equal blocks: {pieces.num_blocks}"
            )
        blocks = blocks_of_stages(pieces.num_blocks, split.pipeline)
        last = split.pipeline - 1
        found = {}
        for index in sorted({0, min(1, last), last}):
            found[index] = self._stage(
                split._replace(chunks=1, overlap=True), micro_batch, index == 0, blocks[index], index == last
            )
        return found

    def _make_stage(self, split: Split, micro_batch: int, first: bool, blocks: int, last: bool) -> Stage:
        weights = self._stage_weights(self.sharding(split), first, blocks, last)
        return make_stage(self._pieces(split, micro_batch), weights, self.device, self.dtype, first, blocks, last)

    def _bytes_of_stage(self, sharding: Sharding, first: bool, blocks: int, last: bool) -> tuple[float, float]:
        if first and last:
            return sharding.bytes_of(self.model.variables), sharding.bytes_of(self.model.trainable_variables)
        return self._weights.of_stage(sharding, first, blocks, last)

    def _memory(self, split: Split, stage: Stage, index: int, micro_batches: int) -> Memory:
        shares = split.shares()
        accumulators = self._accumulate or micro_batches > 1
        optimizer = self._slots * stage.gradients / shares["optimizer"]
        optimizer += accumulators * stage.gradients / shares["gradients"]
        weights = stage.weights / shares["weights"]
        held = split.micro_batches_held(index, micro_batches)
        gathered = 0.0
        if shares["weights"] > 1:
            blocks = max(stage.blocks, self._blocks // split.pipeline, 1)
            gathered = _GATHERED_BLOCKS * self._computed(split, stage) / blocks
        copied = stage.gradients / shares["weights"] if self._copies else 0.0
        training = weights + optimizer + (held - 1) * stage.kept + stage.peak + gathered + copied
        return Memory(weights, stage.gradients / shares["gradients"], optimizer, held * stage.kept, training)

    def _computed(self, split: Split, stage: Stage) -> float:
        """Returns the bytes of the weights of a stage in the dtype in which they are gathered."""
        return stage.weights * self._computed_share(self.sharding(split))

    def _share_in_compute_dtype(self, sharding: Sharding) -> float:
        variables = self.model.variables
        return sharding.bytes_of(variables, self._item_size) / sharding.bytes_of(variables)

    @functools.cached_property
    def _blocks(self) -> int:
        return sum(isinstance(layer, Block) for layer in self.model.layers)

    def _times(
        self, split: Split, stages: dict[int, Stage], micro_batch: int, micro_batches: int
    ) -> tuple[Times, float]:
        """Returns the times of a step, and all communication."""
        fabric = Fabric(self.device, split)
        slowest = max(stages.values(), key=lambda each: each.total.total)
        computed = slowest.total
        tensors = self._tensor_exchange(split, fabric, micro_batch) / split.pipeline
        transfers = self._stage_transfer(split, fabric, micro_batch)
        replicas = self._replica_exchange(split, fabric, stages, micro_batches)
        shown = replicas
        if split.overlap and split.zero == 3:
            shown = max(0.0, replicas - micro_batches * computed.total)
        elif split.overlap:
            shown = max(0.0, replicas - slowest.backward.total)
        one = computed.total + tensors + transfers
        exchange = micro_batches * (tensors + transfers)
        times = Times(
            products=micro_batches * computed.products,
            bandwidth=micro_batches * computed.bandwidth + self._update(split, stages),
            exchange=exchange + shown,
            bubble=split.bubble * one,
        )
        return times, exchange + replicas

    def _tensor_exchange(self, split: Split, fabric: Fabric, micro_batch: int) -> float:
        """Returns the seconds in which the devices of `tensor` sum the outputs of all blocks."""
        if split.tensor == 1:
            return 0.0
        forward, backward = model_sums(self.model)
        sums = forward * (1 + (1 / split.recompute if split.recompute else 0)) + backward
        return reduce_bytes(sums * self._hidden_bytes(split, micro_batch), split.tensor) / fabric.tensor

    def _stage_transfer(self, split: Split, fabric: Fabric, micro_batch: int) -> float:
        """Returns the seconds in which hidden states and their gradients go from stage to stage."""
        if split.pipeline == 1:
            return 0.0
        return 2 * split.chunks * self._hidden_bytes(split, micro_batch) / split.tensor / fabric.stages

    def _hidden_bytes(self, split: Split, micro_batch: int) -> float:
        return micro_batch * self.length * max(self.sharding(split).widths, default=0) * self._item_size

    def _replica_exchange(self, split: Split, fabric: Fabric, stages: dict[int, Stage], micro_batches: int) -> float:
        if split.data == 1:
            return 0.0
        return max(
            replica_bytes(split, self._computed(split, stage), stage.gradients, micro_batches) / fabric.replicas
            for stage in stages.values()
        )

    def _update(self, split: Split, stages: dict[int, Stage]) -> float:
        """Returns the seconds of the optimizer: gradient and weight are read, the state and the weight rewritten."""
        passes = self._passes + 2 * self._accumulate
        gradients = max(stage.gradients for stage in stages.values()) / split.shares()["optimizer"]
        return passes * gradients / (self.device.bandwidth * 1e9 * self.device.reached.bandwidth)


def _lengths(model: keras.Model, length: int) -> frozenset[int]:
    """Returns the numbers of tokens that blocks of a model read."""
    outputs = (keras.tree.flatten(layer.output)[0] for layer in model.layers if isinstance(layer, Block))
    return frozenset(output.shape[1] or length for output in outputs if len(output.shape) == 3)
