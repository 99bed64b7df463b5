"""FLOPs and bytes of a training or decoding step, counted in its traced graph without running it."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import keras

from keras_transformer.backend.compilation.xla import traced_for_fusion
from keras_transformer.planning.devices import Device
from keras_transformer.planning.graph.counting import Kernels, Share, graph_events
from keras_transformer.planning.graph.operations import Operation, seconds
from keras_transformer.planning.graph.pieces import Part, Pieces
from keras_transformer.planning.graph.repeated_blocks import Groups
from keras_transformer.planning.graph.step_graphs import DecodingStep, training_graph
from keras_transformer.planning.graph.traces import count_pieces, few_blocks
from keras_transformer.tasks import LanguageModel


class StepCost(NamedTuple):
    """The cost of a step.

    Attributes:
        operations: `Operation`: all together.
        kept: bytes that the forward pass stores for the backward pass; 0 without a backward pass.
        peak: largest number of bytes allocated at once, with gradients, without weights and inputs.
    """

    operations: Operation
    kept: float
    peak: float

    @property
    def flops(self) -> float:
        """float: FLOPs of the matrix products."""
        return self.operations.flops

    def seconds(self, device: Device, dtype: str = "float32") -> float:
        """Returns the time on a device: see `operations.seconds`."""
        return seconds(self.operations, device, dtype).total


def training_step(
    model: keras.Model, batch_size: int, length: int, fuses: bool = True, share: Share | None = None
) -> StepCost:
    """Returns the cost of the forward and backward pass of a batch.

    Args:
        model: `keras.Model`, whose weights need no values.
        batch_size: int.
        length: int. The size of every unknown axis of the inputs.
        fuses: bool: see `Device`.
        share: function of the shape of a tensor to the fraction of it that one device has. Defaults to all of it.

    Returns:
        `StepCost`.

    Raises:
        UnknownCostError: the trip count of a loop depends on what it is fed.
    """
    with traced_for_fusion() if fuses else contextlib.nullcontext():
        graph, boundary = training_graph(model, batch_size, length)
    return _cost(Pieces(Part.of(graph_events(graph, Kernels(fuses), share, boundary))))


def decoding_step(
    model: LanguageModel,
    batch_size: int,
    context: int,
    fuses: bool = True,
    share: Share | None = None,
    groups: Groups | None = None,
) -> tuple[StepCost, float]:
    """Returns the cost of one new token for each row of a `tasks.LanguageModel`.

    Args:
        model: `tasks.LanguageModel`.
        batch_size: int.
        context: int. The number of tokens in the cache.
        fuses: bool: see `Device`.
        share: see `training_step`.
        groups: `Groups` of equal blocks, of which few are traced: see `find_groups`. Defaults to none.

    Returns:
        `(StepCost, bytes of the cache)`.
    """
    step, kernels = DecodingStep(model, batch_size, context), Kernels(fuses)
    pieces = count_pieces(few_blocks(groups, step.graph), kernels, groups, share)
    if pieces is None:  # Blocks that look equal are not.
        pieces = Pieces(Part.of(graph_events(step.graph().graph, kernels, share)))
    return _cost(pieces), step.cache_bytes


def _cost(pieces: Pieces) -> StepCost:
    forward, backward = pieces.passes()
    top, kept = forward.memory()
    peak, _ = backward.memory(kept)
    operations = Operation.sum([forward.operations(), backward.operations()])
    return StepCost(operations, kept if backward.runs else 0.0, max(top, peak))
