"""The cost of one micro batch in each stage of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import keras

from keras_transformer.backend import keras_private
from keras_transformer.planning.devices import Device
from keras_transformer.planning.graph.operations import Seconds, seconds
from keras_transformer.planning.graph.pieces import Pieces
from keras_transformer.planning.graph.repeated_blocks import Groups
from keras_transformer.planning.sharding import Sharding


class Weights(NamedTuple):
    """The weights of a model by what `Pieces` they belong to; those of a tied embedding are before and after the blocks.

    Attributes:
        before: list of variables.
        blocks: list of variables.
        after: list of variables.
        num_blocks: int. The number of equal blocks.
    """

    before: list[keras.Variable]
    blocks: list[keras.Variable]
    after: list[keras.Variable]
    num_blocks: int

    @classmethod
    def of(cls, model: keras.Model, groups: Groups | None) -> Weights:
        """Returns the weights of a model."""
        if groups is None:
            return cls(model.variables, [], [], 0)
        repeated = {id(block) for block in groups.blocks}
        sides: tuple[dict[int, keras.Variable], dict[int, keras.Variable]] = ({}, {})
        passed = False
        for node in keras_private.nodes_in_order(model):
            if id(node.operation) in repeated:
                passed = True
                continue
            sides[passed].update((id(weight), weight) for weight in getattr(node.operation, "variables", ()))
        blocks = [weight for block in groups.blocks for weight in block.variables]
        return cls(list(sides[False].values()), blocks, list(sides[True].values()), groups.count)

    def of_stage(self, sharding: Sharding, first: bool, blocks: int, last: bool) -> tuple[float, float]:
        """Returns the bytes of the weights and of the gradients of a stage on one device."""
        outer = {id(each): each for each in (*(self.before if first else ()), *(self.after if last else ()))}.values()
        share = blocks / self.num_blocks if self.num_blocks else 0.0
        inside, outside = _bytes(sharding, self.blocks), _bytes(sharding, outer)
        return share * inside[0] + outside[0], share * inside[1] + outside[1]


def _bytes(sharding: Sharding, variables: Iterable[keras.Variable]) -> tuple[float, float]:
    variables = list(variables)
    return sharding.bytes_of(variables), sharding.bytes_of(each for each in variables if each.trainable)


class Stage(NamedTuple):
    """The cost of one micro batch in a stage.

    Attributes:
        forward: `Seconds`.
        backward: `Seconds`.
        blocks: int. The number of equal blocks.
        kept: bytes that the forward pass stores for the backward pass.
        peak: largest number of bytes allocated at once, with gradients, without weights and inputs.
        weights: bytes.
        gradients: bytes.
    """

    forward: Seconds
    backward: Seconds
    blocks: int
    kept: float
    peak: float
    weights: float
    gradients: float

    @property
    def total(self) -> Seconds:
        """Seconds: of both passes."""
        return Seconds(*(sum(each) for each in zip(self.forward, self.backward, strict=True)))


def make_stage(
    pieces: Pieces, weights: tuple[float, float], device: Device, dtype: str, first: bool, blocks: int, last: bool
) -> Stage:
    """Returns the cost of a stage with some of the blocks."""
    forward, backward = pieces.passes(first, blocks, last)
    top, kept = forward.memory()
    peak, _ = backward.memory(kept)
    one, other = (seconds(each.operations(), device, dtype) for each in (forward, backward))
    return Stage(
        one, other, blocks, kept if backward.runs else 0.0, max(top, peak), weights=weights[0], gradients=weights[1]
    )


def blocks_of_stages(count: int, stages: int) -> list[int]:
    """Returns the numbers of blocks of the stages of a pipeline; the first and the last have the fewest.

    Example:

    >>> blocks_of_stages(126, 16)
    [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]
    """
    fewest, more = divmod(count, stages)
    order = [*range(1, stages - 1), 0, stages - 1] if stages > 1 else [0]
    extra = set(order[:more])
    return [fewest + (index in extra) for index in range(stages)]
