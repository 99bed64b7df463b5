"""New tokens among cached keys, for mechanisms that attend to whole sequences alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras import ops

from keras_transformer.attention.cache.dense import check_key_mask, read_dense_cache, token_slots, update_dense_cache
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.types import Cache, Config, Tensor


def extend_dense(
    mechanism: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Cache,
    cache_index: Tensor,
    visibility: Visibility,
    position: str | Config | AttentionPosition | None,
    training: bool | None,
) -> tuple[Tensor, Cache]:
    """Attention of new tokens over a dense cache, by a mechanism of self-attention with `softmax` and `mask`.

    Few tokens attend to the keys of the cache under the dense mask of the pattern, T · L scores. Many are set at their slots
    in a sequence of L, so that the mechanism serves at its own cost.

    Args:
        mechanism: with `softmax`, a `SoftmaxAttention`; `mask(query_slots, key_slots)`, which gives the pattern as a boolean
            `(1 | B, T, S)` or `(1 | B, N, T, S)` for slots `(1 | B, T)` and `(S,)`; and `max_dense_queries`, an int.
        query, key, value, cache, cache_index, visibility, position, training: as for `Mechanism.extend`.

    Returns:
        `(context, next_cache)`.
    """
    check_key_mask(cache, visibility.key_mask)
    cache = update_dense_cache(cache, key, value, cache_index)
    key, value = read_dense_cache(cache, query.dtype)
    slots = ops.arange(ops.shape(key)[1], dtype="int32")
    visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
    if query.shape[1] is not None and query.shape[1] <= mechanism.max_dense_queries:
        query_slots = token_slots(cache_index, query.shape[1])
        visibility = dataclasses.replace(visibility, attention_mask=mechanism.mask(query_slots, slots))
        options = {"visibility": visibility, "position": position, "training": training}
        return mechanism.softmax(query, key, value, **options), cache
    batch, length = ops.shape(key)[0], ops.shape(key)[1]
    places = _places(cache_index, batch, ops.shape(query)[1], length)
    mask = visibility.query_mask
    visibility = dataclasses.replace(
        visibility,
        query_mask=None,
        query_slots=slots,
        query_positions=_placed(with_batch_axis(visibility.query_positions, batch), places, batch, length),
        starts_at_zero=True,
    )
    query = _placed(query, places, batch, length)
    context = _taken(mechanism.attend(query, key, value, visibility, position, training=training), places)
    if mask is not None:
        context = context * ops.expand_dims(ops.expand_dims(ops.cast(mask, context.dtype), 2), 3)
    return context, cache


def _places(cache_index, batch, count, length):
    """The rows `(B, T)` of new tokens among the `B · L` slots of all sequences."""
    slots = token_slots(cache_index, count)
    return ops.reshape(ops.arange(batch, dtype="int32") * length, (-1, 1)) + slots


def _placed(x, places, batch, length):
    """`(B, T, ...)` at its places in `(B, L, ...)`, among zeros."""
    width = math.prod(x.shape[2:])
    empty = ops.zeros((batch * length, width), dtype=x.dtype)
    filled = ops.scatter_update(empty, ops.reshape(places, (-1, 1)), ops.reshape(x, (-1, width)))
    return ops.reshape(filled, (batch, length, *x.shape[2:]))


def _taken(x, places):
    """What stands at its places in `(B, L, N, H)`."""
    rows = ops.reshape(x, (-1, x.shape[2] * x.shape[3]))
    taken = ops.take(rows, ops.reshape(places, (-1,)), axis=0)
    return ops.reshape(taken, (-1, ops.shape(places)[1], *x.shape[2:]))
