"""How a stack of blocks with memory around each segment reads new tokens, with a cache of its current segment."""

from keras import ops

from keras_transformer.blocks.memory.segment_alignment import SegmentAlignment
from keras_transformer.recurrence.sequential import sequential_scan

SLABS = ("key", "value")  # What each block keeps.


def label(name, index):
    """What the cache calls the keys, or the values, of a block."""
    return f"{name}s_of_block_{index}"


def extend(stack, x, mask, cache, cache_index):
    """New tokens of a `MemoryStack`: arguments and result are those of its call with a cache."""
    (batch, length), size = ops.shape(x)[:2], stack.segment_length
    index = ops.reshape(ops.cast(cache_index, "int32"), (-1,)) + ops.zeros((batch,), "int32")
    offsets = ops.mod(index, size)
    is_first = index < size  # Whether the segment that the row stands in is its first.
    if x.shape[1] == 1 and mask is None:
        output, cache = _read_some(stack, x, cache, offsets, None, is_first)
        return output, cache
    lengths = ops.zeros((batch,), "int32") + length
    if mask is not None:
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1)
    rounds, names = SegmentAlignment.of(x, offsets, size), sorted(cache)

    def step(index, carry, tokens):
        starts = index == 0
        places = ops.where(starts, offsets, 0 * offsets)
        slabs = dict(zip(names, carry, strict=True))
        counts = rounds.tokens(index, lengths)
        output, slabs = _read_some(stack, tokens, slabs, places, counts, ops.logical_and(starts, is_first))
        return tuple(slabs[name] for name in names), output

    slabs, outputs = sequential_scan(step, [cache[name] for name in names], (rounds.cut(x),))
    return rounds.join(outputs), dict(zip(names, slabs, strict=True))


def _read_some(stack, tokens, cache, offsets, counts, is_first):
    """Tokens `(B, R, D)` of one segment.

    Args:
        tokens: `(B, R, D)`.
        cache: dict as `init_cache` returns.
        offsets: int32 `(B,)`: the place in the segment of each row's first token.
        counts: int32 `(B,)`: how many of the tokens are real, and of this segment; None where all are.
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
    output, following = _through(stack, tokens, cache, start, past_end=tokens.shape[1] - 1)
    if counts is not None:  # Of what is no token nothing stays.
        ends = ops.reshape(start + counts, (-1, 1, 1, 1))
        slots = ops.reshape(ops.arange(stack.num_memory_tokens + stack.segment_length, dtype="int32"), (1, 1, -1, 1))
        written = {
            name: ops.where(slots < ends, slab, cache[name]) for name, slab in following.items() if name != "memory"
        }
        following |= written
    return output, following


def _enter(stack, cache, enters, is_first):
    """The cache of rows that enter a segment: what the last one has left is its memory, and is read."""
    memory, room = cache["memory"], stack.num_memory_tokens
    zeros = ops.zeros_like(is_first, dtype="int32")
    left, _ = _through(stack, memory, cache, zeros + (room + stack.segment_length), past_end=room)
    first = stack.first_memory(ops.shape(memory)[0])
    memory = ops.cast(_where(is_first, first, left), memory.dtype)
    _, entered = _through(stack, memory, cache, zeros, past_end=0)
    return _chosen(enters, {**entered, "memory": memory}, cache)


def _through(stack, x, cache, start, past_end):
    """What vectors `(B, R, D)` become that stand from the places `start` `(B,)` of their segment on; and the next cache.

    `past_end` is how many of them may stand where the cache has no slots: memory behind the segment, or tokens of the next,
    which are read again.
    """
    following, x = {"memory": cache["memory"]}, ops.cast(x, stack.compute_dtype)
    if stack.learned_positions:
        places = ops.expand_dims(start, 1) + ops.expand_dims(ops.arange(x.shape[1], dtype="int32"), 0)
        places = ops.minimum(places, stack.positions.shape[0] - 1)  # Past the segment's end stands nothing that counts.
        x = x + ops.cast(ops.take(stack.positions, places, axis=0), x.dtype)
    for index, block in enumerate(stack.blocks):
        slots = {name: cache[label(name, index)] for name in SLABS}
        wider = {name: _widened(slab, past_end) for name, slab in slots.items()} if past_end else slots
        x, wider = block(x, cache=wider, cache_index=start)
        following |= {label(name, index): wider[name][:, :, : slots[name].shape[2]] for name in SLABS}
    return x if stack.norm is None else stack.norm(x), following


def _listed(tensors, names):
    return [tensors[name] for name in names]


def _widened(slab, room):
    """`(B, K, L, H)` with `room` empty slots more."""
    batch, heads, _, width = ops.shape(slab)
    return ops.concatenate([slab, ops.zeros((batch, heads, room, width), slab.dtype)], axis=2)


def _where(rows, x, y):
    """Of each row `x` or `y`, `(B, ...)`, by a boolean `(B,)`."""
    return ops.where(ops.reshape(rows, (-1, *[1] * (len(x.shape) - 1))), x, y)


def _chosen(rows, tensors, others):
    return {name: _where(rows, tensor, others[name]) for name, tensor in tensors.items()}
