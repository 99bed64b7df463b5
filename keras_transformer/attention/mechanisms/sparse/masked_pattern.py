"""Incremental decoding with a dense cache for mechanisms that are implemented for whole sequences."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from keras import ops

from keras_transformer.attention.cache.dense import extend_dense_cache, token_slots
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


class MaskedPattern(SoftmaxBasedMechanism):
    """Base class of mechanisms for whole sequences whose pattern can be a mask too: they decode with a dense cache.

    A few new tokens attend to the cached keys with the mask, T · L scores. Many are scattered to their slots in a sequence
    of length L, to which the mechanism is applied at its own cost.
    """

    @property
    def max_dense_queries(self) -> int:
        """int: the largest number of new tokens for which the mask is used."""
        raise NotImplementedError

    def mask(self, query_slots: Tensor, key_slots: Tensor) -> Tensor:
        """Returns the pattern without causality, boolean `(1 | B, T, S)` or `(1 | B, N, T, S)`.

        Args:
            query_slots: int32 `(1 | B, T)`.
            key_slots: int32 `(S,)`.
        """
        raise NotImplementedError

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor | None,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        training: bool | None = None,
        **options: Any,
    ) -> tuple[Tensor, Cache]:
        key, value, slots, cache = extend_dense_cache(cache, key, value, cache_index, visibility.key_mask, query.dtype)
        visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
        if query.shape[1] is not None and query.shape[1] <= self.max_dense_queries:
            query_slots = token_slots(cache_index, query.shape[1])
            visibility = dataclasses.replace(visibility, attention_mask=self.mask(query_slots, slots))
            chosen = {"visibility": visibility, "position": position, "training": training}
            return self.softmax(query, key, value, **chosen), cache
        batch, length = ops.shape(key)[0], ops.shape(key)[1]
        indices = _slot_indices(cache_index, batch, ops.shape(query)[1], length)
        mask = visibility.query_mask
        visibility = dataclasses.replace(
            visibility,
            query_mask=None,
            query_slots=slots,
            query_positions=_scatter(with_batch_axis(visibility.query_positions, batch), indices, batch, length),
            starts_at_zero=True,
        )
        query = _scatter(query, indices, batch, length)
        whole: Any = self.attend(query, key, value, visibility, position, training=training)  # No scores: a tensor.
        context = _gather(whole, indices)
        if mask is not None:
            context = context * ops.expand_dims(ops.expand_dims(ops.cast(mask, context.dtype), 2), 3)
        return context, cache


def _slot_indices(cache_index: Tensor | None, batch: int | Tensor, count: int | Tensor, length: int | Tensor) -> Tensor:
    """Returns the indices `(B, T)` of new tokens among the `B · L` slots of all sequences."""
    slots = token_slots(cache_index, count)
    return ops.reshape(ops.arange(batch, dtype="int32") * length, (-1, 1)) + slots


def _scatter(x: Tensor, indices: Tensor, batch: Tensor, length: Tensor) -> Tensor:
    """Scatters `(B, T, ...)` into zeros `(B, L, ...)`."""
    width = math.prod(x.shape[2:])
    empty = ops.zeros((batch * length, width), dtype=x.dtype)
    filled = ops.scatter_update(empty, ops.reshape(indices, (-1, 1)), ops.reshape(x, (-1, width)))
    return ops.reshape(filled, (batch, length, *x.shape[2:]))


def _gather(x: Tensor, indices: Tensor) -> Tensor:
    """Gathers `(B, T, N, H)` from `(B, L, N, H)`."""
    rows = ops.reshape(x, (-1, x.shape[2] * x.shape[3]))
    gathered = ops.take(rows, ops.reshape(indices, (-1,)), axis=0)
    return ops.reshape(gathered, (-1, ops.shape(indices)[1], *x.shape[2:]))
