"""Attention masks. All are boolean, True = may attend.

Shapes: B batch, T query length, S key length, N heads. A dense mask has rank 4, `(B | 1, N | 1, T | 1, S)`,
so that exported graphs never broadcast across ranks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor

# Far below every score, without overflow when a score or a bias is added.
MASKED_SCORE: float = -1e9


def length_mask(valid_lens: Tensor, length: int) -> Tensor:
    """Returns the mask of valid lengths: position `j` is valid if `j < valid_lens`.

    Args:
        valid_lens: int tensor of shape `(B,)`, one per example, or `(B, T)`, one per query.
        length: int. The key length S.

    Returns:
        Boolean tensor of shape `(B, S)` (a padding mask) or `(B, T, S)` (an attention mask).

    Example:

    >>> length_mask([1, 3], 3).numpy().astype(int).tolist()
    [[1, 0, 0], [1, 1, 1]]
    """
    valid_lens = ops.expand_dims(ops.cast(valid_lens, "int32"), -1)
    return ops.less(ops.arange(length, dtype="int32"), valid_lens)


def segment_mask(segment_ids: Tensor) -> Tensor:
    """Returns the attention mask of packed rows: tokens of a document attend to each other, padding to nothing.

        mask[b, t, s] = (segment_ids[b, t] = segment_ids[b, s]) and segment_ids[b, t] > 0

    Call it inside the model. For causal attention, also pass `use_causal_mask=True` to the layer.

    Args:
        segment_ids: integers `(B, T)`, 0 for padding.

    Returns:
        Bool `(B, T, T)`, True = may attend: the `attention_mask` of `MultiHeadAttention`.

    Example:

    >>> import numpy as np
    >>> np.array(segment_mask(np.array([[1, 1, 2, 0]]))).astype(int).tolist()
    [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]]
    """
    queries, keys = ops.expand_dims(segment_ids, 2), ops.expand_dims(segment_ids, 1)
    return ops.logical_and(ops.equal(queries, keys), ops.greater(queries, 0))


def causal_mask(query_slots: Tensor, key_slots: Tensor) -> Tensor:
    """Returns the causal mask `(B | 1, 1, T, S)`: a query attends to keys up to its own slot."""
    query_slots, key_slots = _as_grid(query_slots, key_slots)
    return ops.greater_equal(query_slots, key_slots)


def window_mask(query_slots: Tensor, key_slots: Tensor, window: int) -> Tensor:
    """Returns the window mask `(B | 1, 1, T, S)`: a query attends to keys fewer than `window` slots away, on both sides."""
    query_slots, key_slots = _as_grid(query_slots, key_slots)
    return ops.less(ops.abs(query_slots - key_slots), window)


def combine(*masks: Tensor | None) -> Tensor | None:
    """Returns the conjunction of the masks that are not None; None if all are None."""
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def _as_grid(query_slots: Tensor, key_slots: Tensor) -> tuple[Tensor, Tensor]:
    """`(T,)` or `(B, T)` to `(B | 1, 1, T, 1)`, and `(S,)` or `(B, S)` to `(B | 1, 1, 1, S)`."""
    query_slots = ops.expand_dims(with_batch_axis(query_slots), 1)
    key_slots = ops.expand_dims(with_batch_axis(key_slots), 1)
    return ops.expand_dims(query_slots, 3), ops.expand_dims(key_slots, 2)


def with_batch_axis(slots: Tensor, batch_size: int | None = None) -> Tensor:
    """Returns slots or positions `(T,)` or `(1 | B, T, ...)` as `(1 | B, T, ...)`; with a batch size, as `(B, T, ...)`."""
    slots = ops.expand_dims(slots, 0) if len(slots.shape) == 1 else slots
    return slots if batch_size is None else ops.broadcast_to(slots, (batch_size, *ops.shape(slots)[1:]))


@dataclasses.dataclass(frozen=True)
class Visibility:
    """Which query may attend to which key, as parts of a mask: mechanisms below quadratic cost never build `(T, S)` masks.

    Attributes:
        query_mask: boolean `(B, T)`, or None. A False query attends to nothing.
        key_mask: boolean `(B, S)`, or None. No query attends to a False key.
        attention_mask: boolean `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, or None.
        segment_ids: int `(B, T)`, or None: see `segment_mask`. Only for mechanisms with `takes_segments`.
        causal: bool. Whether a query attends only to keys up to its own slot.
        window: int >= 1, or None. A query attends only to keys fewer than this many slots away.
        query_slots: int `(T,)` or `(B, T)`: the order of the queries, for causality and windows.
        key_slots: int `(S,)` or `(B, S)`: the order of the keys.
        query_positions: int `(T,)` or `(B, T)`, or as the position object takes them: the positions of the queries; usually
            the slots.
        key_positions: int `(S,)` or `(B, S)`: the positions of the keys.
        starts_at_zero: bool. Whether the slots of queries and keys are 0, 1, 2, ..., as without a cache.

    Example:

    >>> import numpy as np
    >>> visibility = Visibility.from_slots(np.arange(2), np.arange(3), causal=True)
    >>> np.array(visibility.dense())[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """

    query_mask: Tensor | None = None
    key_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    segment_ids: Tensor | None = None
    causal: bool = False
    window: int | None = None
    query_slots: Any = None
    key_slots: Any = None
    query_positions: Any = None
    key_positions: Any = None
    starts_at_zero: bool = False

    @classmethod
    def from_slots(cls, query_slots: Tensor, key_slots: Tensor, **options: Any) -> Visibility:
        """Returns the visibility of queries and keys whose positions are their slots, counted from 0."""
        return cls(
            query_slots=query_slots,
            key_slots=key_slots,
            query_positions=query_slots,
            key_positions=key_slots,
            starts_at_zero=True,
            **options,
        )

    @property
    def needs_mask(self) -> bool:
        """Whether some query may not attend to every key."""
        return self.causal or self.window is not None or self.can_mask_all_keys

    def by_flags(self) -> Visibility:
        """Returns what is left for a mask by kernels with flags for causality from the first token on, and its window."""
        return dataclasses.replace(self, causal=False, window=None) if self.causal and self.starts_at_zero else self

    @property
    def can_mask_all_keys(self) -> bool:
        """Whether all keys of a query may be masked; causal and window masks never mask its own."""
        return any(each is not None for each in (self.query_mask, self.key_mask, self.attention_mask, self.segment_ids))

    def with_segments_as_mask(self) -> Visibility:
        """Returns the same visibility with a mask in place of segments."""
        if self.segment_ids is None:
            return self
        mask = combine(_as_rank_4(self.attention_mask), _as_rank_4(segment_mask(self.segment_ids)))
        return dataclasses.replace(self, attention_mask=mask, segment_ids=None)

    def part(self, begin: int, end: int) -> Visibility:
        """Returns the visibility of the queries from `begin` to `end` and the keys to `end`."""
        mask = self.attention_mask
        return dataclasses.replace(
            self,
            query_mask=None if self.query_mask is None else self.query_mask[:, begin:end],
            key_mask=None if self.key_mask is None else self.key_mask[:, :end],
            attention_mask=None if mask is None else _rows_and_columns(mask, begin, end),
            query_slots=_along_tokens(self.query_slots, begin, end),
            key_slots=_along_tokens(self.key_slots, 0, end),
            query_positions=_along_tokens(self.query_positions, begin, end),
            key_positions=_along_tokens(self.key_positions, 0, end),
            starts_at_zero=False,
        )

    def dense(self) -> Tensor | None:
        """Returns the whole mask `(B | 1, N | 1, T | 1, S | 1)`, or None if every query attends to every key."""
        masks = [_as_rank_4(self.with_segments_as_mask().attention_mask)]
        if self.query_mask is not None:
            masks.append(ops.expand_dims(ops.expand_dims(ops.cast(self.query_mask, "bool"), 1), 3))
        if self.key_mask is not None:
            masks.append(ops.expand_dims(ops.expand_dims(ops.cast(self.key_mask, "bool"), 1), 2))
        if self.causal:
            masks.append(causal_mask(self.query_slots, self.key_slots))
        if self.window is not None:
            masks.append(window_mask(self.query_slots, self.key_slots, self.window))
        return combine(*masks)


def _rows_and_columns(mask: Tensor, begin: int, end: int) -> Tensor:
    """Slices a mask `(..., T | 1, S | 1)`; an axis of 1 is for all."""
    rows = slice(None) if mask.shape[-2] == 1 else slice(begin, end)
    columns = slice(None) if mask.shape[-1] == 1 else slice(0, end)
    return mask[..., rows, columns]


def _along_tokens(x: Tensor | None, begin: int, end: int) -> Tensor | None:
    """Slices slots or positions `(T,)` or `(B, T, ...)`."""
    return None if x is None else x[begin:end] if len(x.shape) == 1 else x[:, begin:end]


def _as_rank_4(mask: Tensor | None) -> Tensor | None:
    """`(T, S)`, `(B, T, S)` or `(B, N, T, S)` to rank 4."""
    if mask is None:
        return None
    expanded = ops.cast(mask, "bool")
    if len(expanded.shape) == 2:
        expanded = ops.expand_dims(expanded, 0)
    if len(expanded.shape) == 3:
        expanded = ops.expand_dims(expanded, 1)
    if len(expanded.shape) != 4:
        raise ValueError(f"attention_mask must be (T, S), (B, T, S) or (B, N, T, S). Received shape: {expanded.shape}")
    return expanded


def implicit_mask(x: Tensor | None) -> Tensor | None:
    """Returns the implicit mask of `x`, such as that of `Embedding(mask_zero=True)`, or None."""
    return keras_private.get_mask(x)


def masked_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Returns mask and position bias as one float32 bias `(B | 1, N | 1, T | 1, S)`; None if both are None."""
    if mask is None:
        return bias
    hidden = ops.cast(ops.logical_not(mask), "float32") * MASKED_SCORE
    return hidden if bias is None else hidden + ops.cast(bias, "float32")


def zero_masked_queries(context: Tensor, seen: Tensor | None) -> Tensor:
    """Sets the context `(B, T, N, H)` of queries that attend to no key to zero; `seen` is boolean `(B, N, T, 1)` or None."""
    if seen is None:
        return context
    return context * ops.cast(ops.transpose(seen, (0, 2, 1, 3)), context.dtype)
