"""Dispatch of tokens to the slots of experts in a mixture of experts.

Slots form groups of one size with one expert per group, so that experts are a batched matrix product over groups. An
assignment is a pair of a token and one of its experts. Assignments are ordered by token, then by choice.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

# Tolerance for float32 rounding, so that an integer product is not rounded up.
_SLACK = 1e-3
# At most 1 / 4 of the rows are unused. More blocks would read the kernels more often.
_BLOCKS_PER_EXPERT = 4


class ExpertCounts(keras.metrics.Metric):
    """Number of assignments of each expert and of dropped assignments since the start of the epoch.

    The counters are weights of the layer, whose updates Keras keeps on all backends. On JAX it loses the updates of metrics
    in the call of a layer.

    Args:
        loads: int32 variable `(E,)`: assignments of each expert.
        dropped: int32 variable `()`: dropped assignments.
        name: str. Prefix of the log entries: "NAME/load_0", "NAME/load_1", ..., "NAME/dropped".
    """

    def __init__(self, loads: keras.Variable, dropped: keras.Variable, name: str = "experts") -> None:
        super().__init__(name=name, dtype="int32")
        # In a function, because Keras would track the variables as those of the metric, in addition to the layer's.
        self._counters = lambda: (loads, dropped)

    def update_state(self, loads: Tensor, dropped: Tensor) -> None:
        """Adds counts, int32 `(E,)` and `()`."""
        for variable, count in zip(self._counters(), (loads, dropped), strict=True):
            variable.assign(variable + count)

    def reset_state(self) -> None:
        for variable in self._counters():
            variable.assign(ops.zeros(variable.shape, "int32"))

    def result(self) -> dict[str, Tensor]:
        """Returns a dict from names to int32 `()`."""
        loads, dropped = (_value(variable) for variable in self._counters())
        counts = {f"{self.name}/load_{index}": loads[index] for index in range(loads.shape[0])}
        return counts | {f"{self.name}/dropped": dropped}


def _value(variable):
    try:
        return ops.convert_to_tensor(variable.value)
    except TypeError:
        # In a training step on JAX the value is not available: only the logs of whole epochs have it.
        return ops.zeros(variable.shape, "int32")


class Dispatch(NamedTuple):
    """Slots of assignments.

    Attributes:
        tokens: int32 `(G · S,)`: the token in each slot of G groups of S slots; arbitrary if the slot is empty.
        slots: int32 `(n, k)`: the slot of each assignment of n tokens; arbitrary if it was dropped.
        kept: boolean `(n, k)`: False for dropped assignments.
        group_size: int, or int32 `()`. S.
        experts: int32 `(G,)`: the expert of each group. None if there is one group per expert, in order.
    """

    tokens: Tensor
    slots: Tensor
    kept: Tensor
    group_size: int | Tensor
    experts: Tensor | None = None


def dispatch_to_blocks(experts: Tensor, num_experts: int) -> Dispatch:
    """Dispatches all assignments to blocks of one expert each. The last block of an expert may not be full.

    For a assignments to E experts there are at most `a / S + E` blocks of S slots. With `S = a / (4 E)` these are 5 E
    blocks, a quarter more rows than assignments, for any lengths.

    Args:
        experts: int32 `(B, T, k)`; `num_experts` for tokens without experts.
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
    used = (ops.sum(chosen, axis=0) + (size - 1)) // size  # Number of blocks of each expert.
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
        experts=ops.minimum(block_experts, num_experts - 1),  # Unused blocks may have any expert.
    )


def dispatch_to_buffers(experts: Tensor, num_experts: int, lengths: Tensor, capacity_factor: float) -> Dispatch:
    """Dispatches the first `ceil(capacity_factor · k · length / E)` assignments of each row to each expert.

    Args:
        experts: int32 `(B, T, k)`; `num_experts` for tokens without experts.
        num_experts: int. E.
        lengths: int32 `(B,)`: the number of tokens of each row that are not padding.
        capacity_factor: float.

    Returns:
        `Dispatch` with one group per expert.
    """
    (batch, length), top_k = ops.shape(experts)[:2], experts.shape[-1]
    share = capacity_factor * top_k / num_experts
    slots_per_row = _capacity(length, share)  # Capacity for one row without padding.
    capacity = ops.minimum(ops.cast(_capacity(ops.cast(lengths, "float32"), share), "int32"), slots_per_row)
    chosen = _one_hot_experts(ops.reshape(experts, (-1, length * top_k)), num_experts)  # (B, T · k, E)
    rank = ops.sum((ops.cumsum(chosen, axis=1) - 1) * chosen, axis=-1)
    kept = ops.logical_and(rank < ops.expand_dims(capacity, 1), ops.sum(chosen, axis=-1) > 0)
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
    expert = ops.reshape(experts, (-1, length * top_k))
    slots = ops.reshape((expert * batch + rows) * slots_per_row + rank, (-1,))
    kept = ops.reshape(kept, (-1,))
    return Dispatch(
        tokens=_tokens(slots, kept, num_experts * batch * slots_per_row, top_k),
        slots=ops.reshape(slots, (-1, top_k)),
        kept=ops.reshape(kept, (-1, top_k)),
        group_size=batch * slots_per_row,
    )


def gather(x: Tensor, dispatch: Dispatch) -> Tensor:
    """Gathers tokens `(n, D)` into their slots, `(G, S, D)`."""
    return ops.reshape(ops.take(x, dispatch.tokens, axis=0), (-1, dispatch.group_size, x.shape[-1]))


def combine(y: Tensor, weights: Tensor, dispatch: Dispatch) -> Tensor:
    """Returns the weighted sum of expert outputs `(G, S, D)` per token, `(n, D)`, without dropped assignments."""
    y = ops.reshape(y, (-1, y.shape[-1]))
    weights = ops.where(dispatch.kept, weights, ops.zeros_like(weights))
    slots = ops.where(dispatch.kept, dispatch.slots, ops.zeros_like(dispatch.slots))
    total = 0
    for index in range(slots.shape[-1]):
        total = total + ops.take(y, slots[:, index], axis=0) * weights[:, index : index + 1]
    return cast("Tensor", total)


def _one_hot_experts(experts, num_experts):
    """Returns the one-hot encoding `(..., E)` of experts `(...)`, zeros for no expert."""
    choices = ops.arange(num_experts, dtype="int32")
    return ops.cast(ops.equal(ops.expand_dims(experts, -1), choices), "int32")


def _tokens(slots, kept, num_slots, top_k):
    """Returns the token of each slot. Dropped assignments are written past the last slot."""
    slots = ops.where(kept, slots, num_slots + ops.zeros_like(slots))
    tokens = ops.arange(ops.shape(slots)[0], dtype="int32") // top_k
    empty = ops.zeros((num_slots + 1,), dtype="int32")
    return ops.scatter_update(empty, ops.expand_dims(slots, 1), tokens)[:num_slots]


def _capacity(length, share):
    """Returns `ceil(share · length)`, at least 1: an int for an int, an int32 tensor for a tensor."""
    if isinstance(length, int):
        return max(1, math.ceil(share * length - _SLACK))
    length = ops.cast(length, "float32")
    return ops.cast(ops.maximum(ops.ceil(share * length - _SLACK), 1), "int32")


def _at_least_one(size):
    return max(1, size) if isinstance(size, int) else ops.maximum(size, 1)
