"""Softmax attention tile by tile: a block of queries against a block of keys at a time, and never the whole of the scores.

Heads come before tokens here: queries `(B, N, T, H)`, keys `(B, K, S, H)`, with T and S whole numbers of blocks.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.weighing import HIDDEN

# Below every score, and far above a hidden one: a query that sees nothing has weights of exactly zero.
_FLOOR = -5e8


@dataclasses.dataclass(frozen=True)
class Tiles:
    """The pairs of blocks, which of them need a look, and what is added to their scores.

    Attributes:
        sizes: tokens of a block of queries, and of a block of keys; ints, or int32 tensors.
        counts: how many blocks of queries there are, and of keys.
        visibility: of the padded sequences; `query_mask` is not read.
        position: an `AttentionPosition` whose bias has no weights and does not read the query, or None.
        dropout: `CountedDropout`, or None.
    """

    sizes: tuple
    counts: tuple
    visibility: Visibility
    position: Any = None
    dropout: Any = None

    def keys_of(self, i):
        """The first block of keys that query block `i` looks at, and the end of them: one at the least."""
        size, visible = self.sizes[1], self.visibility
        # The minimum is for tf2onnx: a loop inside a loop must not be handed what the outer one only passes on.
        first, end = _int(0), ops.minimum(_int(i) + self.counts[1], self.counts[1])
        if not (visible.causal or visible.window) or len(visible.key_slots.shape) == 2:
            return first, end
        slots = self._block(visible.query_slots, i, 0)
        if visible.window is not None:
            first = ops.maximum(ops.minimum(_int((ops.min(slots) - visible.window + 1) // size), end - 1), 0)
        reach = 0 if visible.causal else visible.window - 1
        return first, ops.maximum(ops.minimum(_int((ops.max(slots) + reach) // size + 1), end), first + 1)

    def queries_of(self, j):
        """The first block of queries that may see key block `j`, and the end of them."""
        (queries, keys), visible = self.sizes, self.visibility
        first, end = 0, self.counts[0]
        if not visible.from_start:
            return _int(first), _int(end)
        if visible.causal:
            first = j * keys // queries
        elif visible.window is not None:
            first = (j * keys - visible.window + 1) // queries
        if visible.window is not None:
            end = ops.minimum(_int(((j + 1) * keys + visible.window - 2) // queries + 1), end)
        return ops.maximum(_int(first), 0), _int(end)

    def term(self, query, i, j):
        """What is added to the scores of a tile: its bias, and a large negative number at hidden pairs; or None.

        Args:
            query: the block of queries `(B, N, block, H)`.
            i: int32 `()`: which block of queries.
            j: int32 `()`: which block of keys.
        """
        mask = self._visibility(i, j).dense()
        term = None if mask is None else ops.cast(ops.logical_not(mask), "float32") * HIDDEN
        if self.position is None:
            return term
        places = self._block(self.visibility.query_positions, i, 0), self._block(self.visibility.key_positions, j, 1)
        bias = self.position.bias(ops.transpose(query, (0, 2, 1, 3)), *places)
        if bias is None or term is None:
            return term if bias is None else ops.cast(bias, "float32")
        return term + ops.cast(bias, "float32")

    def _visibility(self, i, j):
        visible, mask = self.visibility, self.visibility.attention_mask
        if mask is not None:
            mask = _slice(_slice(mask, i, self.sizes[0], len(mask.shape) - 2), j, self.sizes[1], len(mask.shape) - 1)
        return dataclasses.replace(
            visible,
            query_mask=None,
            key_mask=None if visible.key_mask is None else _slice(visible.key_mask, j, self.sizes[1], 1),
            attention_mask=mask,
            query_slots=self._block(visible.query_slots, i, 0),
            key_slots=self._block(visible.key_slots, j, 1),
        )

    def _block(self, slots, index, side):
        return _slice(slots, index, self.sizes[side], len(slots.shape) - 1)


def tiled_attention(query, key, value, tiles):
    """`softmax(Q Kᵀ + terms) V`, `(B, N, T, H_value)`, forward and backward in memory linear in T and S.

    The backward pass computes each tile's weights anew, from the log-sum-exp of each query. A query that sees nothing gives
    zeros.

    Args:
        query: `(B, N, T, H)`, scaled already.
        key: `(B, K, S, H)`.
        value: `(B, K, S, H_value)`.
        tiles: `Tiles`.

    Reference: Dao et al., FlashAttention, arXiv 2205.14135, algorithms 1 and 4; Dao, arXiv 2307.08691.
    """

    @ops.custom_gradient
    def attend(query, key, value):
        context, normaliser = _forward(query, key, value, tiles)
        context = ops.cast(context, value.dtype)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            return _backward(query, key, value, tiles, context, normaliser, upstream)

        return context, gradient

    return attend(query, key, value)


def _forward(query, key, value, tiles):
    """The context in float32, and each query's log-sum-exp `(B, N, T, 1)`: block of queries by block of queries."""
    batch, heads, width = ops.shape(query)[0], query.shape[1], value.shape[3]
    (size, key_size), count = tiles.sizes, tiles.counts[0]

    def row(i, contexts, normalisers):
        queries = _slice(query, i, size, 2)
        first, end = tiles.keys_of(i)

        def step(j, highest, total, context):
            scores = _scores(queries, _slice(key, j, key_size, 2), tiles, i, j)
            higher = ops.maximum(highest, ops.max(scores, axis=-1, keepdims=True))
            weights, shrink = ops.exp(scores - higher), ops.exp(highest - higher)
            total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
            if tiles.dropout is not None:
                weights = weights * tiles.dropout.factors(weights, tiles.sizes, i, j)
            seen = _matmul(ops.cast(weights, value.dtype), _slice(value, j, key_size, 2))
            return j + 1, higher, total, context * shrink + ops.cast(seen, "float32")

        total, context = (ops.zeros((batch, heads, size, n), dtype="float32") for n in (1, width))
        _, highest, total, context = ops.while_loop(
            lambda j, *_: j < end, step, (first, total + _FLOOR, total, context)
        )
        total = ops.maximum(total, 1e-30)
        return i + 1, _put(contexts, i, context / total), _put(normalisers, i, highest + ops.log(total))

    buffers = (ops.zeros((count, batch * heads, size * n), dtype="float32") for n in (width, 1))
    _, contexts, normalisers = ops.while_loop(lambda i, *_: i < count, row, (_int(0), *buffers))
    return _whole(contexts, heads, width), _whole(normalisers, heads, 1)


def _backward(query, key, value, tiles, context, normaliser, upstream):
    """The gradients of query, key and value: block of keys by block of keys, and for each the queries that see it."""
    batch, heads, width = ops.shape(query)[0], query.shape[1], query.shape[3]
    (size, key_size), key_heads = tiles.sizes, key.shape[1]
    products = ops.cast(upstream, "float32") * ops.cast(context, "float32")
    delta = ops.sum(products, axis=-1, keepdims=True)  # (B, N, T, 1)

    def column(j, query_gradients, key_gradients, value_gradients):
        keys, values = _slice(key, j, key_size, 2), _slice(value, j, key_size, 2)
        first, end = tiles.queries_of(j)

        def step(i, query_gradients, for_keys, for_values):
            queries, above = _slice(query, i, size, 2), _slice(upstream, i, size, 2)
            scores = _scores(queries, keys, tiles, i, j)
            weights = ops.exp(scores - _slice(normaliser, i, size, 2))
            slopes = ops.cast(_matmul(above, _swap(values)), "float32")
            dropped = weights
            if tiles.dropout is not None:
                factors = tiles.dropout.factors(weights, tiles.sizes, i, j)
                slopes, dropped = slopes * factors, weights * factors
            slopes = ops.cast(weights * (slopes - _slice(delta, i, size, 2)), query.dtype)
            # Transposed, so that the small factor is turned and not the tile.
            for_values = for_values + _gathered(above, ops.cast(dropped, query.dtype), key_heads)
            for_keys = for_keys + _gathered(queries, slopes, key_heads)
            earlier = ops.slice(query_gradients, (i, 0, 0), (1, batch * heads, size * width))
            later = ops.cast(_matmul(slopes, keys), "float32")
            return i + 1, _put(query_gradients, i, later, earlier), for_keys, for_values

        zeros = [ops.zeros((batch, key_heads, n, key_size), dtype="float32") for n in (width, value.shape[3])]
        state = (first, query_gradients, *zeros)
        _, query_gradients, for_keys, for_values = ops.while_loop(lambda i, *_: i < end, step, state)
        following = _put(key_gradients, j, _swap(for_keys)), _put(value_gradients, j, _swap(for_values))
        return j + 1, query_gradients, *following

    counts = tiles.counts
    shapes = [(counts[0], batch * heads, size * width)]
    shapes += [(counts[1], batch * key_heads, key_size * x.shape[3]) for x in (key, value)]
    state = (_int(0), *(ops.zeros(shape, dtype="float32") for shape in shapes))
    _, *buffers = ops.while_loop(lambda j, *_: j < counts[1], column, state)
    return tuple(
        ops.cast(_whole(buffer, x.shape[1], x.shape[3]), x.dtype)
        for buffer, x in zip(buffers, (query, key, value), strict=True)
    )


def _scores(queries, keys, tiles, i, j):
    """`(B, N, block of queries, block of keys)` in float32."""
    scores = ops.cast(_matmul(queries, _swap(keys)), "float32")
    term = tiles.term(queries, i, j)
    return scores if term is None else scores + term


def _matmul(x, y):
    """`(B, N, t, a)` times `(B, K, a, b)`: heads that share a key stand next to each other, and fold into the length."""
    heads, shared = x.shape[1], y.shape[1]
    if heads == shared:
        return ops.matmul(x, y)
    length = ops.shape(x)[2]
    folded = ops.reshape(x, (-1, shared, heads // shared * length, ops.shape(x)[3]))
    return ops.reshape(ops.matmul(folded, y), (-1, heads, length, ops.shape(y)[3]))


def _gathered(x, weights, key_heads):
    """`xᵀ weights`, `(B, K, H, block of keys)`, summed over the heads that share a key."""
    group, length = x.shape[1] // key_heads, ops.shape(x)[2]
    if group > 1:
        x = ops.reshape(x, (-1, key_heads, group * length, x.shape[3]))
        weights = ops.reshape(weights, (-1, key_heads, group * length, ops.shape(weights)[3]))
    return ops.cast(ops.matmul(_swap(x), weights), "float32")


def _swap(x):
    return ops.transpose(x, (0, 1, 3, 2))


def _slice(x, index, size, axis):
    """Block `index` of `x` along `axis`; what has one entry there serves all blocks."""
    if x.shape[axis] == 1:
        return x
    shape = ops.shape(x)
    starts = [index * size if at == axis else 0 for at in range(len(shape))]
    return ops.slice(x, starts, [size if at == axis else extent for at, extent in enumerate(shape)])


def _put(buffer, index, block, earlier=None):
    """Writes a block into row `index` of a buffer `(count, B * N, block * H)`, on top of what was there, if given."""
    block = ops.reshape(block, (1, ops.shape(buffer)[1], ops.shape(buffer)[2]))
    block = block if earlier is None else earlier + block
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), block)


def _whole(buffer, heads, width):
    """`(count, B * N, block * H)` to `(B, N, T, H)`."""
    joined = ops.transpose(buffer, (1, 0, 2))
    return ops.reshape(joined, (-1, heads, ops.shape(joined)[1] * (ops.shape(joined)[2] // width), width))


def _int(x):
    return ops.cast(ops.convert_to_tensor(x), "int32")
