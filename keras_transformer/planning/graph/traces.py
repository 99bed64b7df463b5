"""The events of the steps of one model, traced once and counted for any batch size and split."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable

import keras

from keras_transformer.attention.softmax.causal_blocks import whole_rows
from keras_transformer.backend import keras_private
from keras_transformer.backend.compilation.xla import traced_for_fusion
from keras_transformer.blocks.equal_blocks import equal_blocks_traced_once, find_equal_blocks
from keras_transformer.planning.graph.counting import Kernels, Share, graph_events
from keras_transformer.planning.graph.pieces import Part, Pieces, divide
from keras_transformer.planning.graph.repeated_blocks import Groups
from keras_transformer.planning.graph.step_graphs import StepGraph, training_graph
from keras_transformer.planning.sharding import Sharding
from keras_transformer.training.recomputation import recompute_blocks

_SMALL_BATCHES = (2, 3)  # 1 may be traced as another graph, without broadcasting.


class Traces:
    """The training step of a model.

    Args:
        model: `keras.Model`, whose weights need no values.
        length: int. The size of every unknown axis of the inputs.
        kernels: `Kernels`.
        groups: `Groups` of equal blocks, of which few are traced; None for all.
        loss_chunk: see `training_graph`.
    """

    def __init__(
        self,
        model: keras.Model,
        length: int,
        kernels: Kernels,
        groups: Groups | None,
        loss_chunk: int | None = None,
    ) -> None:
        self._model = model
        self._length = length
        self._kernels = kernels
        self.groups = groups
        self._loss_chunk = loss_chunk
        self._graphs: dict[tuple[int, int], list[StepGraph]] = {}
        self._counted: dict[Hashable, Pieces] = {}

    def pieces(self, batch_size: int, recompute: int = 0, share: Sharding | None = None) -> Pieces:
        """Returns the events of a step, traced with that batch size."""
        key = (batch_size, recompute, share and share.key)
        if key not in self._counted:
            found = count_pieces(self._traced(batch_size, recompute), self._kernels, self.groups, share)
            if found is None:  # Blocks that look equal are not.
                self.groups = None
                self._graphs.clear()
                return self.pieces(batch_size, recompute, share)
            self._counted[key] = found
        return self._counted[key]

    def scaled(
        self, batch_size: int, recompute: int, share: Sharding, gradients: float = 1.0, weights: float = 1.0
    ) -> Pieces:
        """Returns the events of a step with any batch size, from two small ones, without further tracing.

        What an operation computes, moves and allocates is a line over the batch size: the part of the weights, and that
        of each sequence.

        Args:
            batch_size: int.
            recompute: int.
            share: `Sharding`.
            gradients: fraction of the memory of gradients that a device has.
            weights: fraction of the memory of copies of weights, in the dtype of the computation, that a device has.
        """
        one, two = (self.pieces(size, recompute, share) for size in _SMALL_BATCHES)
        if not one.is_like(two):
            return self.pieces(batch_size, recompute, share)
        first, second = _SMALL_BATCHES
        position, start = ((size - first) / (second - first) for size in (batch_size, 0))
        return one.line(two, position, start, weights, gradients)

    def _traced(self, batch_size: int, recompute: int) -> list[StepGraph]:
        key = (batch_size, recompute)
        if key not in self._graphs:
            set_recompute(self._model, recompute)
            kinds = {} if self._kernels.fuses else find_equal_blocks(self._model)
            self._graphs[key] = few_blocks(self.groups, lambda: self._trace(batch_size, kinds))
        return self._graphs[key]

    def _trace(self, batch_size: int, kinds: dict[int, Hashable]) -> StepGraph:
        with contextlib.ExitStack() as stack:
            if self._kernels.fuses:
                # Their kernels are for whole rows, whose scores `Kernels` knows by their shape; XLA needs no recomputation.
                stack.enter_context(whole_rows())
                stack.enter_context(traced_for_fusion())
            # With the operations of all blocks, which keep what those of `training` do.
            stack.enter_context(equal_blocks_traced_once(self._model, kinds, inlined=True))
            return training_graph(self._model, batch_size, self._length, self._loss_chunk)


def few_blocks(groups: Groups | None, trace: Callable[[], StepGraph]) -> list[StepGraph]:
    """Traces a step with few of the equal blocks and with one more; only the whole model if it has none."""
    if groups is None:
        return [trace()]
    traced = []
    for count in (groups.fewest, groups.fewest + 1):
        with groups.only(count):
            traced.append(trace())
    return traced


def count_pieces(
    traced: list[StepGraph], kernels: Kernels, groups: Groups | None, share: Share | None
) -> Pieces | None:
    """Returns the events of what `few_blocks` has traced; None if they do not show those of all blocks."""
    events = [graph_events(graph, kernels, share, boundary) for graph, boundary in traced]
    if groups is None:
        return Pieces(Part.of(events[0]))
    few, more = events
    return divide(few, more, groups.fewest, groups.count)


def set_recompute(model: keras.Model, every: int) -> None:
    """Makes every n-th block recompute its activations; 0 for none."""
    if every or any(getattr(layer, "recompute", False) for layer in keras_private.flatten_layers(model)):
        recompute_blocks(model, every)
