"""Global tokens: selected tokens of each row that attend to all tokens, and all tokens to them."""

from __future__ import annotations

import dataclasses
import math

from keras import ops

from keras_transformer.attention.masks import Visibility, combine, with_batch_axis
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class FirstTokens:
    """The first `count` tokens of each row.

    Attributes:
        count: int >= 1.
        length: the length T of the rows.
    """

    count: int
    length: int | Tensor

    @property
    def is_global(self) -> Tensor:
        """Boolean `(1, T)`."""
        return ops.expand_dims(ops.arange(self.length, dtype="int32") < self.count, 0)

    mask = None  # All of them are valid.

    def gather(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B, G, ...)`."""
        return x[:, : self.count]

    gather_integers = gather

    def scatter(self, x: Tensor, chosen: Tensor) -> Tensor:
        """`(B, T, N, H)` with the global tokens replaced by `chosen`, `(B, G, N, H)`."""
        return ops.concatenate([chosen, x[:, self.count :]], axis=1)


@dataclasses.dataclass(frozen=True)
class MarkedTokens:
    """The first `count` tokens of each row that a mask marks.

    They are gathered by a product with one-hot rows, without sorting or out-of-range indices.

    Attributes:
        selection: float32 `(B, G, T)`: one-hot rows; zeros beyond the marked tokens of a row.
    """

    selection: Tensor

    @classmethod
    def of_mask(cls, mask: Tensor | None, count: int | Tensor) -> MarkedTokens:
        """Selects the first `count` True entries of a boolean mask `(B, T)`."""
        ranks = ops.cumsum(ops.cast(mask, "int32"), axis=1) * ops.cast(mask, "int32")  # 1, 2, ...; 0 for others.
        wanted = ops.reshape(ops.arange(1, count + 1, dtype="int32"), (1, count, 1))
        return cls(ops.cast(ops.equal(ops.expand_dims(ranks, 1), wanted), "float32"))

    @property
    def is_global(self) -> Tensor:
        """Boolean `(B, T)`."""
        return ops.sum(self.selection, axis=1) > 0.5

    @property
    def mask(self) -> Tensor:
        """Boolean `(B, G)`: which of the global tokens are valid."""
        return ops.sum(self.selection, axis=2) > 0.5

    def gather(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B, G, ...)`."""
        rows = ops.reshape(x, (-1, ops.shape(x)[1], math.prod(x.shape[2:])))
        chosen = ops.matmul(ops.cast(self.selection, x.dtype), rows)
        return ops.reshape(chosen, (-1, self.selection.shape[1], *x.shape[2:]))

    def gather_integers(self, x: Tensor) -> Tensor:
        """`(1 | B, T)` integers, below 2^24, to `(B, G)`."""
        rows = ops.expand_dims(ops.cast(x, "float32"), 2)
        return ops.cast(ops.round(ops.squeeze(ops.matmul(self.selection, rows), 2)), "int32")

    def scatter(self, x: Tensor, chosen: Tensor) -> Tensor:
        """`(B, T, N, H)` with the global tokens replaced by `chosen`, `(B, G, N, H)`."""
        back = ops.transpose(ops.cast(self.selection, x.dtype), (0, 2, 1))
        rows = ops.matmul(back, ops.reshape(chosen, (-1, self.selection.shape[1], math.prod(chosen.shape[2:]))))
        others = ops.cast(ops.logical_not(self.is_global), x.dtype)
        kept = x * ops.expand_dims(ops.expand_dims(others, 2), 3)
        return kept + ops.reshape(rows, (-1, ops.shape(x)[1], *x.shape[2:]))


def choose_global(
    first: int, marked: int, global_mask: Tensor | None, visibility: Visibility
) -> FirstTokens | MarkedTokens | None:
    """Returns the global tokens: the first ones, and up to `marked` others for which the mask is True; None if none.

    Args:
        first: int >= 0. The number of first tokens that are global.
        marked: int >= 0.
        global_mask: boolean `(B, T)`, or None.
        visibility: of all tokens.
    """
    length = ops.shape(visibility.query_slots)[1]
    if global_mask is None:
        return FirstTokens(first, length) if first else None
    mask = ops.cast(global_mask, "bool")
    if first:
        mask = ops.logical_or(mask, FirstTokens(first, length).is_global)
    return MarkedTokens.of_mask(combine(mask, visibility.key_mask), first + marked)


def of_keys(visibility: Visibility, chosen: FirstTokens | MarkedTokens) -> Visibility:
    """The `Visibility` of all queries over the chosen keys."""
    mask = chosen.mask
    if visibility.key_mask is not None:
        mask = combine(mask, _gather_mask(visibility.key_mask, chosen))
    return dataclasses.replace(
        visibility,
        key_mask=mask,
        key_slots=chosen.gather_integers(with_batch_axis(visibility.key_slots)),
        key_positions=chosen.gather_integers(with_batch_axis(visibility.key_positions)),
    )


def of_queries(visibility: Visibility, chosen: FirstTokens | MarkedTokens) -> Visibility:
    """The `Visibility` of the chosen queries over all keys."""
    mask = chosen.mask
    if visibility.query_mask is not None:
        mask = combine(mask, _gather_mask(visibility.query_mask, chosen))
    return dataclasses.replace(
        visibility,
        query_mask=mask,
        query_slots=chosen.gather_integers(with_batch_axis(visibility.query_slots)),
        query_positions=chosen.gather_integers(with_batch_axis(visibility.query_positions)),
    )


def _gather_mask(mask: Tensor | None, chosen: FirstTokens | MarkedTokens):
    return ops.cast(chosen.gather_integers(ops.cast(mask, "int32")), "bool")
