"""A function of queries and shared tensors, computed for one tile of queries at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.attention.softmax.tiles import integer, take_block
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.utils.types import Tensor


def by_query_tiles(
    function: Callable[..., Tensor], query: Tensor, slots: Tensor, shared: Sequence[Tensor], size: int
) -> Tensor:
    """Returns `function(query, slots, *shared)`, in which no query depends on another, in tiles of `size` queries.

    Memory is that of one tile, forward and backward: the backward pass recomputes each tile. A single tile is computed
    directly.

    Args:
        function: function of a tile of the queries `(B, t, N, H)`, their slots `(B, t)` and the shared tensors to
            `(B, t, N, W)`.
        query: float `(B, T, N, H)`.
        slots: int32 `(B, T)`.
        shared: float tensors of static rank.
        size: int >= 1. t.

    Returns:
        `(B, T, N, W)`.

    Example: each query times the sum of the keys.

    >>> import numpy as np
    >>> query, slots = np.arange(5.0).reshape(1, 5, 1, 1), np.zeros((1, 5), "int32")
    >>> times = lambda query, slots, key: query * ops.sum(key)
    >>> np.array(by_query_tiles(times, query, slots, [np.ones((3,))], size=2)).ravel().tolist()
    [0.0, 3.0, 6.0, 9.0, 12.0]
    """
    query, shared = ops.convert_to_tensor(query), [ops.convert_to_tensor(x) for x in shared]
    if query.shape[1] is not None and query.shape[1] <= size:
        return function(query, slots, *shared)
    length = ops.shape(query)[1]
    count = block_count(length, size)
    slots = pad_length(slots, 0, count * size - length)

    def tile(query: Tensor, index: int | Tensor, *shared: Tensor) -> Tensor:
        return function(query, take_block(slots, index, size, 1), *shared)

    @ops.custom_gradient
    def run(query: Tensor, *shared: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        output = _forward(tile, query, shared, size, count)

        def gradient(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream
            return _backward(tile, query, shared, size, count, upstream)

        return output, gradient

    padded = pad_length(query, 0, count * size - length)
    return run(padded, *shared)[:, :length]


def _forward(
    tile: Callable[..., Tensor], query: Tensor, shared: Sequence[Tensor], size: int, count: int | Tensor
) -> Tensor:
    """Returns the outputs of all tiles, `(B, count · size, N, W)`."""
    first = tile(take_block(query, 0, size, 1), 0, *shared)
    width = first.shape[3]

    def step(index: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        output = tile(take_block(query, index, size, 1), index, *shared)
        return index + 1, _put(buffer, index, output)

    empty = ops.zeros((count, *_row(query, size, width)), dtype=first.dtype)
    buffer = _put(empty, integer(0), first)
    _, buffer = ops.while_loop(lambda index, _: index < count, step, (integer(1), buffer))
    return _whole(buffer, size, query.shape[2], width)


def _backward(
    tile: Callable[..., Tensor],
    query: Tensor,
    shared: Sequence[Tensor],
    size: int,
    count: int | Tensor,
    upstream: Tensor,
) -> tuple[Tensor, ...]:
    """Returns the gradients of the queries and of the shared tensors."""

    def step(index: Tensor, buffer: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
        _, pullback = vjp(lambda part, *shared: tile(part, index, *shared), take_block(query, index, size, 1), *shared)
        for_query, *more = pullback(take_block(upstream, index, size, 1))
        added = (total + ops.cast(each, "float32") for total, each in zip(sums, more, strict=True))
        return index + 1, _put(buffer, index, for_query), *added

    buffer = ops.zeros((count, *_row(query, size, query.shape[3])), dtype=query.dtype)
    sums = (ops.zeros(ops.shape(x), dtype="float32") for x in shared)
    _, buffer, *sums = ops.while_loop(lambda index, *_: index < count, step, (integer(0), buffer, *sums))
    gradients = [ops.cast(total, x.dtype) for total, x in zip(sums, shared, strict=True)]
    return _whole(buffer, size, query.shape[2], query.shape[3]), *gradients


def _row(query: Tensor, size: int, width: int) -> tuple[int | Tensor, int]:
    """The shape of a tile `(B, t, N, width)` as a row of the buffer."""
    return ops.shape(query)[0], size * query.shape[2] * width


def _put(buffer: Tensor, index: Tensor, tile: Tensor) -> Tensor:
    row = ops.reshape(tile, (1, ops.shape(buffer)[1], ops.shape(buffer)[2]))
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), row)


def _whole(buffer: Tensor, size: int, heads: int, width: int) -> Tensor:
    """`(count, B, t · N · W)` to `(B, count · t, N, W)`."""
    joined = ops.transpose(buffer, (1, 0, 2))
    return ops.reshape(joined, (-1, ops.shape(joined)[1] * size, heads, width))
