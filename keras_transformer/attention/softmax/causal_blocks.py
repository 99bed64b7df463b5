"""Causal attention by blocks of queries, each over the keys up to its end: about half of the scores are never computed."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.softmax.recomputed_attention import QueryBlock
from keras_transformer.backend.devices.split_rows import mesh_that_splits_rows
from keras_transformer.utils.types import Tensor

# Below, more products of fewer rows take longer than what they leave out.
_SMALLEST = 128
# Eight compute 9/16 of the scores; more make the graph larger for little.
_MOST = 8
_is_whole: contextvars.ContextVar[bool] = contextvars.ContextVar("is_whole", default=False)


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
    return [QueryBlock(end - size, end, end, _part(visibility, end - size, end)) for end in ends]


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


def _part(visibility, begin, end):
    """Returns the visibility of the queries from `begin` to `end` and the keys to `end`."""
    mask = visibility.attention_mask
    return dataclasses.replace(
        visibility,
        query_mask=None if visibility.query_mask is None else visibility.query_mask[:, begin:end],
        key_mask=None if visibility.key_mask is None else visibility.key_mask[:, :end],
        attention_mask=None if mask is None else _rows_and_columns(mask, begin, end),
        query_slots=_along_tokens(visibility.query_slots, begin, end),
        key_slots=_along_tokens(visibility.key_slots, 0, end),
        query_positions=_along_tokens(visibility.query_positions, begin, end),
        key_positions=_along_tokens(visibility.key_positions, 0, end),
        starts_at_zero=False,
    )


def _rows_and_columns(mask: Any, begin: int, end: int) -> Any:
    """Slices a mask `(..., T | 1, S | 1)`; an axis of 1 is for all."""
    rows = slice(None) if mask.shape[-2] == 1 else slice(begin, end)
    columns = slice(None) if mask.shape[-1] == 1 else slice(0, end)
    return mask[..., rows, columns]


def _along_tokens(x: Any, begin: int, end: int) -> Any:
    """Slices slots or positions `(T,)` or `(B, T, ...)`."""
    return None if x is None else x[begin:end] if len(x.shape) == 1 else x[:, begin:end]
