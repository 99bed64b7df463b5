"""How devices divide a training among themselves."""

from __future__ import annotations

from typing import NamedTuple

from keras_transformer.planning.errors import PlanningError

_ZERO_STAGES = (0, 1, 2, 3)


class Split(NamedTuple):
    """How devices divide a training: `data · tensor · pipeline` devices.

    Neighbors on the link of a node share the weights of a layer; then come the replicas, then the stages of the pipeline.

    Attributes:
        data: number of replicas, each with a part of the batch.
        tensor: number of devices that share the weights of each layer, as `models.layout_map` splits them.
        pipeline: number of stages, of consecutive blocks.
        zero: stage of ZeRO: what the replicas divide among themselves: 0 nothing; 1 the state of the optimizer; 2 the
            gradients too; 3 the weights too (fully sharded).
        micro_batch: sequences that a replica computes at once; None for all of them.
        recompute: `every` of `training.recompute_blocks`.
        chunks: groups of blocks per stage in an interleaved pipeline, which divide its bubble.
        sequence: whether the devices of `tensor` also divide the tokens between the products (sequence parallelism).
        overlap: whether the exchange of gradients and of sharded weights hides behind the computation.

    Example:

    >>> Split(data=4, tensor=8, pipeline=2).devices
    64

    Reference: Rajbhandari et al., ZeRO, arXiv 1910.02054; Narayanan et al., Efficient Large-Scale Language Model Training on
    GPU Clusters Using Megatron-LM, arXiv 2104.04473, sections 2 and 3; Korthikanti et al., Reducing Activation Recomputation
    in Large Transformer Models, arXiv 2205.05198, section 4.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    micro_batch: int | None = None
    recompute: int = 0
    chunks: int = 1
    sequence: bool = False
    overlap: bool = True

    @property
    def devices(self) -> int:
        """int: the number of devices."""
        return self.data * self.tensor * self.pipeline

    def micro_batches(self, batch_size: int) -> int:
        """Returns the number of micro batches in the batch of a replica.

        Raises:
            PlanningError: the micro batch does not divide the batch.
        """
        size = self.micro_batch or batch_size
        if batch_size % size:
            raise PlanningError(f"a batch of {batch_size} does not divide into micro batches of {size}")
        return batch_size // size

    @property
    def bubble(self) -> float:
        """float: idle time of a stage in a step, in units of the time of a micro batch.

        Example:

        >>> Split(pipeline=4).bubble, Split(pipeline=4, chunks=2).bubble
        (3.0, 1.5)
        """
        return (self.pipeline - 1) / self.chunks

    def micro_batches_held(self, stage: int, micro_batches: int) -> float:
        """Returns the number of micro batches whose activations a stage holds at once (one forward, one backward).

        Example:

        >>> [Split(pipeline=4).micro_batches_held(stage, 8) for stage in range(4)]
        [4.0, 3.0, 2.0, 1.0]
        """
        ahead = self.pipeline - stage
        interleaved = 0.0 if self.chunks == 1 else (self.pipeline - 1) / self.chunks
        return min(float(micro_batches), ahead + interleaved)

    def shares(self) -> dict[str, int]:
        """Returns into how many parts the replicas divide the optimizer's state, the gradients and the weights."""
        kinds = ("optimizer", "gradients", "weights")
        return {kind: self.data if self.zero >= stage else 1 for stage, kind in enumerate(kinds, 1)}


def check_split(split: Split) -> None:
    """Raises `PlanningError` for sizes below 1 or an unknown stage of ZeRO."""
    for name in ("data", "tensor", "pipeline", "chunks"):
        if getattr(split, name) < 1:
            raise PlanningError(f"{name} must be at least 1: {getattr(split, name)}")
    if split.micro_batch is not None and split.micro_batch < 1:
        raise PlanningError(f"micro_batch must be at least 1: {split.micro_batch}")
    if split.recompute < 0:
        raise PlanningError(f"recompute must be at least 0: {split.recompute}")
    if split.zero not in _ZERO_STAGES:
        raise PlanningError(f"zero must be 0, 1, 2 or 3: {split.zero}")


def describe(split: Split) -> str:
    """Returns a split in words.

    Example:

    >>> describe(Split(data=4, tensor=8, zero=1, micro_batch=2, recompute=1))
    'data 4 x tensor 8, ZeRO 1, micro batch 2, recomputed'
    """
    parts = [f"{name} {size}" for name, size in zip(split._fields[:3], split[:3], strict=True) if size > 1]
    words = [" x ".join(parts) or "one device"]
    words += [f"ZeRO {split.zero}"] if split.zero else []
    words += [f"micro batch {split.micro_batch}"] if split.micro_batch else []
    words += ["recomputed"] if split.recompute else []
    return ", ".join(words)
