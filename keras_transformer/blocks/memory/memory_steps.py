"""Incremental decoding of `MemoryStack`, with a cache of the current segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.blocks.memory.segment_alignment import SegmentAlignment
from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.blocks.memory.memory_stack import MemoryStack

SLABS = ("key", "value")  # The tensors that each block caches.


def label(name: str, index: int) -> str:
    """Returns the cache's name for the keys or the values of a block."""
    return f"{name}s_of_block_{index}"


def extend(
    stack: MemoryStack, x: Tensor, mask: Tensor | None, cache: Cache, cache_index: Tensor | None
) -> tuple[Tensor, Cache]:
    """Calls a `MemoryStack` on new tokens with a cache. Arguments and results are those of the layer's call."""
    (batch, length), size = ops.shape(x)[:2], stack.segment_length
    index = ops.reshape(ops.cast(cache_index, "int32"), (-1,)) + ops.zeros((batch,), "int32")
    offsets = ops.mod(index, size)
    is_first = index < size  # Whether the row is in its first segment.
    if x.shape[1] == 1 and mask is None:
        output, cache = _read_segment(stack, x, cache, offsets, None, is_first)
        return output, cache
    lengths = ops.zeros((batch,), "int32") + length
    if mask is not None:
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1)
    alignment, names = SegmentAlignment.of(x, offsets, size), sorted(cache)

    def step(index, carry, tokens):
        starts = index == 0
        indices = ops.where(starts, offsets, 0 * offsets)
        slabs = dict(zip(names, carry, strict=True))
        counts = alignment.token_counts(index, lengths)
        output, slabs = _read_segment(stack, tokens, slabs, indices, counts, ops.logical_and(starts, is_first))
        return tuple(slabs[name] for name in names), output

    slabs, outputs = sequential_scan(step, tuple(cache[name] for name in names), (alignment.split(x),))
    return alignment.join(outputs), dict(zip(names, slabs, strict=True))


def _read_segment(stack, tokens, cache, offsets, counts, is_first):
    """Decodes tokens of one segment.

    Args:
        tokens: `(B, R, D)`.
        cache: dict as `init_cache` returns.
        offsets: int32 `(B,)`: the index of each row's first token within its segment.
        counts: int32 `(B,)`: the number of real tokens that belong to this segment; None if all do.
        is_first: boolean `(B,)`: whether the segment is the first of its row.

    Returns:
        `(B, R, D)`, and the next cache.
    """
    enters = ops.equal(offsets, 0)
    if counts is not None:
        enters = ops.logical_and(enters, counts > 0)
        cache = _enter(stack, cache, enters, is_first)
    else:
        names = sorted(cache)
        entered = ops.cond(
            ops.any(enters),
            lambda: _listed(_enter(stack, cache, enters, is_first), names),
            lambda: _listed(cache, names),
        )
        cache = dict(zip(names, entered, strict=True))
    start = offsets + stack.num_memory_tokens
    output, following = _apply_blocks(stack, tokens, cache, start, overflow=tokens.shape[1] - 1)
    if counts is not None:  # Padding does not enter the cache.
        ends = ops.reshape(start + counts, (-1, 1, 1, 1))
        slots = ops.reshape(ops.arange(stack.num_memory_tokens + stack.segment_length, dtype="int32"), (1, 1, -1, 1))
        written = {
            name: ops.where(slots < ends, slab, cache[name]) for name, slab in following.items() if name != "memory"
        }
        following |= written
    return output, following


def _enter(stack, cache, enters, is_first):
    """Returns the cache with rows that enter a segment updated: the memory is computed from the last segment, and read."""
    memory, num_tokens = cache["memory"], stack.num_memory_tokens
    zeros = ops.zeros_like(is_first, dtype="int32")
    end = zeros + (num_tokens + stack.segment_length)
    written, _ = _apply_blocks(stack, memory, cache, end, overflow=num_tokens)
    first = stack.first_memory(ops.shape(memory)[0])
    memory = ops.cast(_where(is_first, first, written), memory.dtype)
    _, entered = _apply_blocks(stack, memory, cache, zeros, overflow=0)
    return _select(enters, {**entered, "memory": memory}, cache)


def _apply_blocks(stack, x, cache, start, overflow):
    """Applies the blocks to vectors `(B, R, D)` from index `start` `(B,)` of their segment; returns the next cache too.

    Up to `overflow` of the vectors may be past the slots of the cache: memory after the segment, or tokens of the next
    segment, which are read again.
    """
    following, x = {"memory": cache["memory"]}, ops.cast(x, stack.compute_dtype)
    if stack.learned_positions:
        indices = ops.expand_dims(start, 1) + ops.expand_dims(ops.arange(x.shape[1], dtype="int32"), 0)
        indices = ops.minimum(indices, stack.positions.shape[0] - 1)  # Outputs past the segment's end are not used.
        x = x + ops.cast(ops.take(stack.positions, indices, axis=0), x.dtype)
    for index, block in enumerate(stack.blocks):
        slots = {name: cache[label(name, index)] for name in SLABS}
        wider = {name: _widened(slab, overflow) for name, slab in slots.items()} if overflow else slots
        x, wider = block(x, cache=wider, cache_index=start)
        following |= {label(name, index): wider[name][:, :, : slots[name].shape[2]] for name in SLABS}
    return x if stack.norm is None else stack.norm(x), following


def _listed(tensors, names):
    return [tensors[name] for name in names]


def _widened(slab, count):
    """`(B, K, L, H)` with `count` more empty slots."""
    batch, heads, _, width = ops.shape(slab)
    return ops.concatenate([slab, ops.zeros((batch, heads, count, width), slab.dtype)], axis=2)


def _where(rows, x, y):
    """Selects the rows of `x` or `y`, `(B, ...)`, by a boolean `(B,)`."""
    return ops.where(ops.reshape(rows, (-1, *[1] * (len(x.shape) - 1))), x, y)


def _select(rows, tensors, others):
    return {name: _where(rows, tensor, others[name]) for name, tensor in tensors.items()}
