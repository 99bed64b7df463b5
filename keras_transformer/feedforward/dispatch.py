"""Which token stands in which slot of which expert: the bookkeeping of a mixture of experts, in integers.

Slots come in groups of one size, each group of one expert, so that experts are a batched matrix product over groups. An
assignment is one token at one of the experts chosen for it; they are counted token by token, first choice first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras import ops

from keras_transformer.utils.types import Tensor

# So that the noise of float32 does not make one slot more of a product that is an integer.
_SLACK = 1e-3
# Blocks may waste one part in so many of the rows; more of them would read the kernels more often.
_BLOCKS_PER_EXPERT = 4


class Dispatch(NamedTuple):
    """Where assignments stand.

    Attributes:
        tokens: int32 `(G · S,)`: the token in each slot of G groups of S; any, where the slot is empty.
        slots: int32 `(n, k)`: the slot of each assignment of n tokens; any, where it has none.
        kept: boolean `(n, k)`: whether it has one.
        group_size: int, or int32 `()`. S.
        experts: int32 `(G,)`: the expert of each group; None where there is one group for each expert, in order.
    """

    tokens: object
    slots: object
    kept: object
    group_size: object
    experts: object = None


def dispatch_to_blocks(experts: Tensor, num_experts: int) -> Dispatch:
    """A slot for every assignment: the assignments of one expert fill blocks, of which the last may not be full.

    For a assignments to E experts there are at most `a / S + E` blocks of S; with `S = a / (4 E)` that is a quarter more
    rows than assignments, and 5 E blocks, whatever the lengths.

    Args:
        experts: int32 `(B, T, k)`; `num_experts` where a token goes nowhere.
        num_experts: int. E.

    Returns:
        `Dispatch`.
    """
    top_k = experts.shape[-1]
    flat = ops.reshape(experts, (-1,))
    count = ops.shape(flat)[0]
    size = _at_least_one(count // (_BLOCKS_PER_EXPERT * num_experts))
    num_blocks = (count + num_experts * (size - 1)) // size
    chosen = _one_hot_experts(flat, num_experts)  # (a, E)
    used = (ops.sum(chosen, axis=0) + (size - 1)) // size  # Blocks of each expert.
    ends = ops.cumsum(used, axis=0)
    first = ops.expand_dims(ends - used, 0) * size
    rank = ops.cumsum(chosen, axis=0) - 1
    slots = ops.sum((first + rank) * chosen, axis=-1)
    kept = flat < num_experts
    blocks = ops.expand_dims(ops.arange(num_blocks, dtype="int32"), 1)
    block_experts = ops.sum(ops.cast(blocks >= ops.expand_dims(ends, 0), "int32"), axis=-1)
    return Dispatch(
        tokens=_tokens(slots, kept, num_blocks * size, top_k),
        slots=ops.reshape(slots, (-1, top_k)),
        kept=ops.reshape(kept, (-1, top_k)),
        group_size=size,
        experts=ops.minimum(block_experts, num_experts - 1),  # Blocks that nobody uses are anyone's.
    )


def dispatch_to_buffers(experts: Tensor, num_experts: int, lengths: Tensor, capacity_factor: float) -> Dispatch:
    """At most `ceil(capacity_factor · k · length / E)` slots at each expert for each row, to those who come first.

    Args:
        experts: int32 `(B, T, k)`; `num_experts` where a token goes nowhere.
        num_experts: int. E.
        lengths: int32 `(B,)`: the real tokens of each row.
        capacity_factor: float.

    Returns:
        `Dispatch`, of one group for each expert.
    """
    (batch, length), top_k = ops.shape(experts)[:2], experts.shape[-1]
    share = capacity_factor * top_k / num_experts
    room = _capacity(length, share)  # Of one row at one expert, were all its tokens real.
    capacity = ops.minimum(ops.cast(_capacity(ops.cast(lengths, "float32"), share), "int32"), room)
    chosen = _one_hot_experts(ops.reshape(experts, (-1, length * top_k)), num_experts)  # (B, T · k, E)
    rank = ops.sum((ops.cumsum(chosen, axis=1) - 1) * chosen, axis=-1)
    kept = ops.logical_and(rank < ops.expand_dims(capacity, 1), ops.sum(chosen, axis=-1) > 0)
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
    expert = ops.reshape(experts, (-1, length * top_k))
    slots = ops.reshape((expert * batch + rows) * room + rank, (-1,))
    kept = ops.reshape(kept, (-1,))
    return Dispatch(
        tokens=_tokens(slots, kept, num_experts * batch * room, top_k),
        slots=ops.reshape(slots, (-1, top_k)),
        kept=ops.reshape(kept, (-1, top_k)),
        group_size=batch * room,
    )


def gather(x: Tensor, dispatch: Dispatch) -> Tensor:
    """Tokens `(n, D)` in their slots, `(G, S, D)`."""
    return ops.reshape(ops.take(x, dispatch.tokens, axis=0), (-1, dispatch.group_size, x.shape[-1]))


def combine(y: Tensor, weights: Tensor, dispatch: Dispatch) -> Tensor:
    """What experts gave `(G, S, D)`, summed by `weights` `(n, k)` for each token, `(n, D)`; nothing for what is not kept."""
    y = ops.reshape(y, (-1, y.shape[-1]))
    weights = ops.where(dispatch.kept, weights, ops.zeros_like(weights))
    slots = ops.where(dispatch.kept, dispatch.slots, ops.zeros_like(dispatch.slots))
    total = 0
    for index in range(slots.shape[-1]):
        total = total + ops.take(y, slots[:, index], axis=0) * weights[:, index : index + 1]
    return total


def _one_hot_experts(experts, num_experts):
    """1 at the expert of each assignment `(...)`, `(..., E)`; all 0 where it is none."""
    choices = ops.arange(num_experts, dtype="int32")
    return ops.cast(ops.equal(ops.expand_dims(experts, -1), choices), "int32")


def _tokens(slots, kept, num_slots, top_k):
    """The token of each slot: what has none is written behind the last."""
    slots = ops.where(kept, slots, num_slots + ops.zeros_like(slots))
    tokens = ops.arange(ops.shape(slots)[0], dtype="int32") // top_k
    empty = ops.zeros((num_slots + 1,), dtype="int32")
    return ops.scatter_update(empty, ops.expand_dims(slots, 1), tokens)[:num_slots]


def _capacity(length, share):
    """`ceil(share · length)`, at least 1: of a Python number an int, of a tensor one of its kind."""
    if isinstance(length, int):
        return max(1, math.ceil(share * length - _SLACK))
    length = ops.cast(length, "float32")
    return ops.cast(ops.maximum(ops.ceil(share * length - _SLACK), 1), "int32")


def _at_least_one(size):
    return max(1, size) if isinstance(size, int) else ops.maximum(size, 1)
