"""Causal attention by blocks of queries, each over the keys up to its end: about half of the scores are never computed.

The backward pass computes the weights again, one block at a time, as in FlashAttention: its gradient, in closed form, keeps
queries, keys, values and context, not the weights `(B, N, T, S)`. First-order only: JAX has no forward-mode derivative.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from keras import ops

from keras_transformer.attention.masks import Visibility, masked_bias
from keras_transformer.backend.devices.split_rows import mesh_that_splits_rows
from keras_transformer.backend.gradients.vjp import after, not_before
from keras_transformer.utils.types import Tensor

# Below, more products of fewer rows take longer than what they leave out.
_SMALLEST = 128
# Eight compute 9/16 of the scores; more make the graph larger for little.
_MOST = 8
_is_whole: contextvars.ContextVar[bool] = contextvars.ContextVar("is_whole", default=False)


@dataclasses.dataclass(frozen=True)
class QueryBlock:
    """Queries from `begin` to `end`, and the keys before `key_end` that they attend to.

    Attributes:
        begin, end, key_end: ints.
        visibility: `Visibility` of these queries and keys.
    """

    begin: int
    end: int
    key_end: int
    visibility: Visibility

    def queries(self, x: Tensor) -> Tensor:
        """Returns the queries of the block, `(B, N, t, H)`, from those of whole rows, `(B, N, T, H)`."""
        return x[:, :, self.begin : self.end]

    def keys(self, x: Tensor) -> Tensor:
        """Returns the keys of the block, `(B, K, s, H)`, from those of whole rows, `(B, K, S, H)`."""
        return x[:, :, : self.key_end]


@contextlib.contextmanager
def whole_rows() -> Iterator[None]:
    """Within it, rows are not computed in blocks: for the graph of a device whose kernels compute whole rows.

    Example:

    >>> x, steps = ops.ones((1, 256, 1, 2)), ops.arange(256)
    >>> visibility = Visibility.from_slots(steps, steps, causal=True)
    >>> with whole_rows():
    ...     number_of_blocks(x, x, visibility)
    1
    """
    token = _is_whole.set(True)
    try:
        yield
    finally:
        _is_whole.reset(token)


def number_of_blocks(query: Tensor, key: Tensor, visibility: Visibility) -> int:
    """Returns the number of equal blocks for causal queries of a static length from the first token on; 1 for others."""
    length = query.shape[1]
    if _is_whole.get():
        return 1
    if not (visibility.causal and visibility.starts_at_zero) or length is None or length != key.shape[1]:
        return 1
    if mesh_that_splits_rows() is not None:  # The parts of a row are on different devices.
        return 1
    return next((count for count in range(min(length // _SMALLEST, _MOST), 1, -1) if length % count == 0), 1)


def causal_blocks(count: int, length: int, visibility: Visibility) -> list[QueryBlock]:
    """Returns `count` equal blocks of the queries, each with the keys up to its end, and which of these it attends to.

    Example:

    >>> visibility = Visibility.from_slots(ops.arange(4), ops.arange(4), causal=True)
    >>> [(block.begin, block.end, block.key_end) for block in causal_blocks(2, 4, visibility)]
    [(0, 2, 2), (2, 4, 4)]
    """
    size, visibility = length // count, visibility.with_segments_as_mask()
    ends = [(index + 1) * size for index in range(count)]
    return [QueryBlock(end - size, end, end, visibility.part(end - size, end)) for end in ends]


def parts_of_rows(
    blocks: list[QueryBlock], query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Visibility]]:
    """Yields the queries of each causal block, the keys and values up to its end, and which of these they see.

    Example:

    >>> x = ops.ones((1, 4, 2, 3))
    >>> visibility = Visibility.from_slots(ops.arange(4), ops.arange(4), causal=True)
    >>> [(tuple(q.shape), tuple(k.shape)) for q, k, *_ in parts_of_rows(causal_blocks(2, 4, visibility), x, x, x)]
    [((1, 2, 2, 3), (1, 2, 2, 3)), ((1, 2, 2, 3), (1, 4, 2, 3))]
    """
    # Parts that are joined again: the gradient of a join is a copy of its parts, that of a slice has the size of the whole.
    queries, keys, values = (ops.split(x, len(blocks), axis=1) for x in (query, key, value))
    for index, block in enumerate(blocks):
        prefix = [ops.concatenate(x[: index + 1], axis=1) if index else x[0] for x in (keys, values)]
        yield queries[index], *prefix, block.visibility


def recomputed_attention(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[QueryBlock]) -> Tensor:
    """Returns `softmax(Q Kᵀ + masks) V`, with the softmax in float32.

    With P the weights of a block of queries, O its context and dO the gradient of it, `dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O))`,
    `dQ = dS K`, `dK = dSᵀ Q` and `dV = Pᵀ dO`. The context of a query whose keys are all masked is the mean of the values.

    Args:
        query: float `(B, T, N, H)`, scaled already.
        key: float `(B, S, K, H)`; N is a multiple of K.
        value: float `(B, S, K, H_value)`.
        blocks: the blocks of all queries, in their order; none has fewer keys than those before it, and the last has all.

    Returns:
        The context `(B, T, N, H_value)`.

    Example:

    >>> import numpy as np
    >>> x = np.eye(2, dtype="float32").reshape(1, 2, 1, 2)
    >>> recomputed_attention(x, x, x, [QueryBlock(0, 2, 2, Visibility())]).numpy().round(2)[0, 0, 0].tolist()
    [0.7300000190734863, 0.27000001072883606]

    Reference: Dao et al., FlashAttention, arXiv 2205.14135, algorithm 4. Deviation: a block of queries has all of its keys,
    so that the softmax is computed again as a whole, and needs no log-sum-exp.
    """

    @ops.custom_gradient
    def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        query, key, value = (_heads_swapped(x) for x in (query, key, value))
        context = _heads_swapped(_forward(query, key, value, blocks))

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            slopes = arguments[0] if upstream is None else upstream
            # Of the context as it is returned, which others keep too. (B, N, T, 1)
            mean_slopes = _heads_swapped(ops.sum(_wide(slopes) * _wide(context), axis=-1, keepdims=True))
            return _backward(query, key, value, _heads_swapped(slopes), mean_slopes, blocks)

        return context, backward

    return attend(query, key, value)


def _forward(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[QueryBlock]) -> Tensor:
    """Returns the context `(B, N, T, H_value)`, from tensors with the heads first."""
    contexts: list[Tensor] = []
    for block in blocks:
        queries, keys, values = block.queries(query), key, value
        if contexts:  # One block after the other, with the memory of one.
            queries = after(contexts[-1], queries)
            keys, values = (not_before(contexts[-1], x) for x in (key, value))
        weights = ops.cast(_weights(queries, block.keys(keys), block.visibility), query.dtype)
        contexts.append(_unfolded(ops.matmul(_folded(weights, value), block.keys(values)), queries))
    return ops.concatenate(contexts, axis=2)


def _backward(
    query: Tensor, key: Tensor, value: Tensor, upstream: Tensor, mean_slopes: Tensor, blocks: Sequence[QueryBlock]
) -> tuple[Tensor, ...]:
    """Returns the gradients of query, key and value, `(B, T | S, N | K, H)`, from tensors with the heads first."""
    of_queries, of_key, of_value = [], None, None
    for block in blocks:
        # The dependencies keep blocks in order, with the memory of one, and the weights apart from those of the first pass.
        before = upstream if of_key is None else of_key
        queries = after(before, block.queries(query))
        keys, values = (block.keys(not_before(before, x)) for x in (key, value))
        slopes = block.queries(upstream) if of_value is None else after(of_value, block.queries(upstream))
        parts = _gradients(queries, keys, values, block, slopes, mean_slopes)
        of_queries.append(parts[0])
        of_key, of_value = _added(of_key, parts[1]), _added(of_value, parts[2])
    of_key, of_value = (ops.transpose(ops.cast(x, query.dtype), (0, 3, 1, 2)) for x in (of_key, of_value))
    return _heads_swapped(ops.concatenate(of_queries, axis=2)), of_key, of_value


def _gradients(
    queries: Tensor, keys: Tensor, values: Tensor, block: QueryBlock, slopes: Tensor, mean_slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of the queries `(B, N, t, H)`, and those of keys and values as `(B, K, H, s)`.

    Args:
        queries, keys, values: those of the block; heads first.
        block: `QueryBlock`.
        slopes: `(B, N, t, H_value)`. dO.
        mean_slopes: float32 `(B, N, T, 1)`. rowsum(dO ∘ O), of whole rows.
    """
    dtype = queries.dtype
    weights = _weights(queries, keys, block.visibility)
    by_key, by_value = _folded(queries, keys), _folded(slopes, values)
    # This order has no large transposed factor, for which XLA needs three times as long on a CPU.
    of_values = _product(by_value, ops.cast(_folded(weights, values), dtype))
    of_weights = _wide(_unfolded(ops.matmul(by_value, _transposed(values)), weights))
    of_scores = _folded(ops.cast(weights * (of_weights - block.queries(mean_slopes)), dtype), keys)
    return _unfolded(ops.matmul(of_scores, keys), queries), _product(by_key, of_scores), of_values


def _weights(queries: Tensor, keys: Tensor, visibility: Visibility) -> Tensor:
    """Returns the softmax of a block in float32, `(B, N, t, s)`."""
    scores = _wide(_unfolded(ops.matmul(_folded(queries, keys), _transposed(keys)), queries))
    bias = masked_bias(visibility.dense(), None)
    return ops.softmax(scores if bias is None else scores + bias, axis=-1)


def _folded(x: Tensor, keys: Tensor) -> Tensor:
    """`(B, N, t, W)` to `(B, K, N / K · t, W)`: the heads that share a head of keys or values become one, without copies."""
    heads, key_heads = x.shape[1], keys.shape[1]
    return x if heads == key_heads else ops.reshape(x, (-1, key_heads, heads // key_heads * x.shape[2], x.shape[3]))


def _unfolded(x: Tensor, like: Tensor) -> Tensor:
    """`(B, K, N / K · t, W)` to `(B, N, t, W)`, with the heads and the length of another tensor."""
    return x if x.shape[1] == like.shape[1] else ops.reshape(x, (-1, like.shape[1], like.shape[2], x.shape[3]))


def _product(x: Tensor, y: Tensor) -> Tensor:
    """Returns `xᵀ y` over the last two axes, in float32, in which the blocks are summed."""
    return _wide(ops.matmul(_transposed(x), y))


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    """Returns the sum of a total `(B, K, H, r)` over the blocks before and the part of a block, `(B, K, H, s)`, r <= s."""
    if total is None:
        return part
    more = part.shape[3] - total.shape[3]
    return part + (total if more == 0 else ops.pad(total, [(0, 0), (0, 0), (0, 0), (0, more)]))


def _heads_swapped(x: Tensor) -> Tensor:
    """`(B, T, N, H)` to `(B, N, T, H)`, and back."""
    return ops.transpose(x, (0, 2, 1, 3))


def _transposed(x: Tensor) -> Tensor:
    return ops.swapaxes(x, -1, -2)


def _wide(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")
