"""Tiled softmax attention (FlashAttention), which never builds the whole score matrix.

Shapes: queries `(B, N, T, H)`, keys `(B, K, S, H)`, with T and S multiples of the block sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.masks import masked_bias
from keras_transformer.attention.softmax.tiles import integer, take_block
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.softmax.tiles import Tiles


# Below every score and far above a masked one, so that masked weights are exactly zero.
_FLOOR = -5e8


def tiled_attention(query: Tensor, key: Tensor, value: Tensor, tiles: Tiles) -> Tensor:
    """Tiled softmax attention, `softmax(Q Kᵀ + terms) V`, in memory linear in T and S, forward and backward.

    The backward pass recomputes the weights of each tile from the log-sum-exp of each query. A query that
    attends to no key has a zero context.

    Args:
        query: `(B, N, T, H)`.
        key: `(B, K, S, H)`, scaled already: a position may read the queries.
        value: `(B, K, S, H_value)`.
        tiles: `Tiles`.

    Reference: Dao et al., FlashAttention, arXiv 2205.14135, algorithms 1 and 4; Dao, arXiv 2307.08691.
    """

    @ops.custom_gradient
    def attend(
        query: Tensor, key: Tensor, value: Tensor, *learned: Tensor
    ) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        context, normalizer = _forward(query, key, value, learned, tiles)
        context = ops.cast(context, value.dtype)

        def gradient(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream
            return _backward(query, key, value, learned, tiles, context, normalizer, upstream)

        return context, gradient

    return attend(query, key, value, *tiles.position.weights)


def _forward(query: Tensor, key: Tensor, value: Tensor, learned, tiles: Tiles):
    """Returns the context in float32, and the log-sum-exp `(B, N, T, 1)`, by a loop over blocks of queries."""
    batch, heads, width = ops.shape(query)[0], query.shape[1], value.shape[3]
    (size, key_size), count = tiles.sizes, tiles.counts[0]

    def row(i: Tensor, contexts: Tensor, normalizers: Tensor) -> tuple[Tensor, ...]:
        queries = take_block(query, i, size, 2)
        first, end = tiles.keys_of(i)

        def step(j: Tensor, highest: Tensor, total: Tensor, context: Tensor) -> tuple[Tensor, ...]:
            positions = tiles.positions(i, j)
            bias = tiles.position.bias(queries, positions, learned)
            scores = _scores(queries, take_block(key, j, key_size, 2), bias, tiles.mask(i, j))
            higher = ops.maximum(highest, ops.max(scores, axis=-1, keepdims=True))
            weights, shrink = ops.exp(scores - higher), ops.exp(highest - higher)
            total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
            factors = None if tiles.dropout is None else tiles.dropout.factors(weights, tiles.sizes, i, j)
            weights = ops.cast(_times(weights, factors), value.dtype)
            seen = _matmul(weights, take_block(value, j, key_size, 2))
            added = tiles.position.values(weights, positions, learned)
            seen = seen if added is None else seen + added
            return j + 1, higher, total, context * shrink + ops.cast(seen, "float32")

        total, context = (ops.zeros((batch, heads, size, n), dtype="float32") for n in (1, width))
        _, highest, total, context = ops.while_loop(
            lambda j, *_: j < end, step, (first, total + _FLOOR, total, context)
        )
        total = ops.maximum(total, 1e-30)
        return i + 1, _put(contexts, i, context / total), _put(normalizers, i, highest + ops.log(total))

    buffers = (ops.zeros((count, batch * heads, size * n), dtype="float32") for n in (width, 1))
    _, contexts, normalizers = ops.while_loop(lambda i, *_: i < count, row, (integer(0), *buffers))
    return _whole(contexts, heads, width), _whole(normalizers, heads, 1)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    learned,
    tiles: Tiles,
    context: Tensor,
    normalizer: Tensor,
    upstream: Tensor,
):
    """Returns the gradients of all arguments, by a loop over blocks of keys."""
    rows = (query, upstream, normalizer, _sums(upstream, context))
    counts, (size, key_size) = tiles.counts, tiles.sizes
    batch, key_heads = ops.shape(query)[0], key.shape[1]

    def column(
        j: Tensor, query_gradients: Tensor, key_gradients: Tensor, value_gradients: Tensor, *for_learned: object
    ) -> tuple[Tensor, ...]:
        columns = [take_block(x, j, key_size, 2) for x in (key, value)]
        first, end = tiles.queries_of(j)

        def step(
            i: Tensor, query_gradients: Tensor, for_keys: Tensor, for_values: Tensor, *for_learned: Tensor
        ) -> tuple[Tensor, ...]:
            blocks = [take_block(x, i, size, 2) for x in rows]
            for_queries, *more = _tile_gradients(blocks, columns, learned, tiles, (i, j))
            earlier = ops.slice(query_gradients, (i, 0, 0), (1, *ops.shape(query_gradients)[1:]))
            sums = (a + ops.cast(b, "float32") for a, b in zip((for_keys, for_values, *for_learned), more, strict=True))
            return i + 1, _put(query_gradients, i, for_queries, earlier), *sums

        zeros = (ops.zeros((batch, key_heads, x.shape[3], key_size), dtype="float32") for x in (key, value))
        state = (first, query_gradients, *zeros, *for_learned)
        _, query_gradients, *sums = ops.while_loop(lambda i, *_: i < end, step, state)
        following = _put(key_gradients, j, _swap(sums[0])), _put(value_gradients, j, _swap(sums[1]))
        return j + 1, query_gradients, *following, *sums[2:]

    state = (integer(0), *_zero_sums(query, key, value, learned, tiles))
    _, *sums = ops.while_loop(lambda j, *_: j < counts[1], column, state)
    wholes = [_whole(sums[at], x.shape[1], x.shape[3]) for at, x in enumerate((query, key, value))]
    arguments = (query, key, value, *learned)
    return tuple(ops.cast(x, of.dtype) for x, of in zip((*wholes, *sums[3:]), arguments, strict=True))


def _zero_sums(query: Tensor, key: Tensor, value: Tensor, learned, tiles: Tiles) -> list[Tensor]:
    """Returns zeros to sum the gradients in: a row for each block of queries, of keys and of values, and the weights."""
    counts, (size, key_size) = tiles.counts, tiles.sizes
    batch, heads, key_heads = ops.shape(query)[0], query.shape[1], key.shape[1]
    shapes = [(counts[0], batch * heads, size * query.shape[3])]
    shapes += [(counts[1], batch * key_heads, key_size * x.shape[3]) for x in (key, value)]
    shapes += [x.shape for x in learned]
    return [ops.zeros(shape, dtype="float32") for shape in shapes]


def _tile_gradients(
    rows: Sequence[Tensor],
    columns: Sequence[Tensor],
    learned: Sequence[Tensor],
    tiles: Tiles,
    tile: tuple[Tensor, Tensor],
) -> tuple[Tensor, ...]:
    """The gradients of a tile: of queries, transposed keys and values, and the weights of the position.

    Args:
        rows: blocks of the queries, of the upstream gradient, of the normalizers, and of the sums of context and gradient.
        columns: blocks of the keys and of the values.
        learned: weights of the position.
        tiles: `Tiles`.
        tile: the indices of the block of queries and of the block of keys.
    """
    queries, upstream, normalizer, total = rows
    keys, values = columns
    positions, position, key_heads = tiles.positions(*tile), tiles.position, keys.shape[1]
    bias, bias_gradient = position.bias_and_gradient(queries, positions, learned)
    weights = ops.exp(_scores(queries, keys, bias, tiles.mask(*tile)) - normalizer)
    factors = None if tiles.dropout is None else tiles.dropout.factors(weights, tiles.sizes, *tile)
    dropped = ops.cast(_times(weights, factors), queries.dtype)
    slopes = ops.cast(_matmul(upstream, _swap(values)), "float32")
    more, for_learned = position.values_gradient(dropped, positions, learned, upstream)
    slopes = slopes if more is None else slopes + ops.cast(more, "float32")
    slopes = weights * (_times(slopes, factors) - total)
    for_queries, for_bias = bias_gradient(slopes)
    slopes = ops.cast(slopes, queries.dtype)
    later = ops.cast(_matmul(slopes, keys), "float32")
    later = later if for_queries is None else later + ops.cast(for_queries, "float32")
    # Transposed gradients avoid transposing the tile.
    transposed = _gathered(queries, slopes, key_heads), _gathered(upstream, dropped, key_heads)
    return later, *transposed, *_both(for_learned, for_bias, learned)


def _both(first, second, learned):
    """The sum of two lists of gradients, either of which may be empty."""
    if not (first or second):
        return [ops.zeros_like(x) for x in learned]
    return [a + b for a, b in zip(first, second, strict=True)] if first and second else first or second


def _sums(upstream: Tensor, context: Tensor):
    """`(B, N, T, 1)`, float32: the row sums of the softmax gradient."""
    return ops.sum(ops.cast(upstream, "float32") * ops.cast(context, "float32"), axis=-1, keepdims=True)


def _times(x: Tensor, factors: Tensor | None):
    return x if factors is None else x * factors


def _scores(queries: Tensor, keys: Tensor, bias: Tensor | None, mask: Tensor | None):
    """`(B, N, block of queries, block of keys)` in float32."""
    scores, term = ops.cast(_matmul(queries, _swap(keys)), "float32"), masked_bias(mask, bias)
    return scores if term is None else scores + term


def _matmul(x: Tensor, y):
    """`(B, N, t, a)` times `(B, K, a, b)`: heads that share a key are adjacent and folded into the length."""
    heads, shared = x.shape[1], y.shape[1]
    if heads == shared:
        return ops.matmul(x, y)
    length = ops.shape(x)[2]
    folded = ops.reshape(x, (-1, shared, heads // shared * length, ops.shape(x)[3]))
    return ops.reshape(ops.matmul(folded, y), (-1, heads, length, ops.shape(y)[3]))


def _gathered(x: Tensor, weights: Tensor, key_heads: int):
    """`xᵀ weights`, `(B, K, H, block of keys)`, summed over the heads that share a key."""
    group, length = x.shape[1] // key_heads, ops.shape(x)[2]
    if group > 1:
        x = ops.reshape(x, (-1, key_heads, group * length, x.shape[3]))
        weights = ops.reshape(weights, (-1, key_heads, group * length, ops.shape(weights)[3]))
    return ops.cast(ops.matmul(_swap(x), weights), "float32")


def _swap(x: Tensor):
    return ops.transpose(x, (0, 1, 3, 2))


def _put(buffer, index: Tensor, block, earlier=None):
    """Writes a block into row `index` of a buffer `(count, B * N, block * H)`, added to `earlier` if given."""
    block = ops.reshape(block, (1, ops.shape(buffer)[1], ops.shape(buffer)[2]))
    block = block if earlier is None else earlier + block
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), block)


def _whole(buffer, heads: int, width: int):
    """`(count, B * N, block * H)` to `(B, N, T, H)`."""
    joined = ops.transpose(buffer, (1, 0, 2))
    return ops.reshape(joined, (-1, heads, ops.shape(joined)[1] * (ops.shape(joined)[2] // width), width))
