"""Infini-attention: attention within segments, with a compressive memory of earlier segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.compressive_memory import memories, read_memory, segment_heads, split_memories
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache, token_slots
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.bands import Bands, block_count, pad_length, pad_to_blocks, take_rows
from keras_transformer.attention.token_mixer import zero_masked
from keras_transformer.backend.kernels.scan import chunk_size_for
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Cache, Config, DType, Initializer, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# Features of queries and of keys, and values.
_Features = tuple[Tensor, Tensor, Tensor]
_UPDATES = ("linear", "delta")


class _NewTokens(NamedTuple):
    """New tokens: rotated queries; keys and values with those in the cache before them; `features` of the new tokens.

    `slots` are those of the keys, and `read` `(B, 1)` is the number of earlier tokens in the segment of the first.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    features: _Features
    slots: Tensor
    read: Tensor


@serializable
class InfiniAttention(SoftmaxBasedMechanism):
    """Infini-attention: softmax attention within segments, gated per head with a compressive memory of earlier segments.

        y = sigmoid(β) σ(q) M / (σ(q) · z) + (1 - sigmoid(β)) softmax(q kᵀ / √H) v,    σ(x) = elu(x) + 1

    After a segment of keys K and values V, `M += σ(K)ᵀ V` ("linear") or `M += σ(K)ᵀ (V - σ(K) M / (σ(K) z))` ("delta", which
    subtracts the values retrieved from the memory), and `z += Σ σ(K)`. A segment reads the memory of the segments before it.
    Positions apply to the softmax only.

    All segments are computed in parallel: "linear" by cumulative sums of the updates, "delta" by a scan over the affine maps
    of the segments. For segments of C, time grows with `T · (C + H) · H`, memory with `T · C + T / C · H²`; "delta" adds
    `T / C · log(T / C) · H³` and `T / C · H²`. Memories and their sums are in float32 under every dtype policy.

    Args:
        segment_length: int >= 1. C. Default 512.
        update: "linear" or "delta". Default "linear".
        gate_initializer: of β, one for each query head. Default "zeros": equal weights of memory and softmax.
        scoring: of the softmax: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the weights of the softmax.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Self-attention, all positions. Causal; or bidirectional, where a query attends to its
    whole segment and the memory of earlier segments. The size of the cache is independent of `max_length`: keys and values
    of the last C tokens; "memory", of the complete segments; and "pending", the update by the incomplete segment. Both are
    `(B, K, H, H_value + 1)`, with z in the last column.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `segment_length` below 1; an unknown update; a call with scores, an `attention_mask` or other keys
            than queries.

    Example:

    >>> import numpy as np
    >>> x, values = np.zeros((1, 4, 1, 2)), np.array([0.0, 2.0, 4.0, 6.0]).reshape(1, 4, 1, 1)
    >>> y = InfiniAttention(segment_length=2)(x, x, values)  # Half the mean of its segment, half that of the one before.
    >>> y.numpy().round(3).ravel().tolist()
    [1.0, 1.0, 3.0, 3.0]

    Reference: Munkhdalai et al., Leave No Context Behind, arXiv 2404.07143, section 2.1. Deviations: where the memory is
    empty, as in the first segment, the output is the softmax attention without the gate (as in the package
    infini-transformer-pytorch, whose gate weights the softmax and starts at sigmoid(10)); no epsilon is added to `σ(q) · z`.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})
    applies_rotation = True
    cache_is_rewindable = False

    def __init__(
        self,
        segment_length: int = 512,
        update: str = "linear",
        gate_initializer: Initializer = "zeros",
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.segment_length = positive("segment_length", segment_length)
        if update not in _UPDATES:
            raise ValueError(f"update must be one of {_UPDATES}. Received: {update!r}")
        self.update = update
        self.gate_initializer = keras.initializers.get(gate_initializer)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        build_once(self.softmax, query_shape, key_shape, value_shape)
        self.gate = self.add_weight(name="gate", shape=(query_shape[2],), initializer=self.gate_initializer)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        size, length = chunk_size_for(query, self.segment_length), ops.shape(query)[1]
        bands = Bands(size, 0, 0)
        rotated = _rotate(position, query, key, visibility)
        local = self.softmax(
            *(bands.blocks(x) for x in (*rotated, value)),
            visibility=bands.visibility(visibility, query, key),
            position=position,
            training=training,
        )
        if isinstance(length, int) and length <= size:
            return bands.join(local, length)  # The first segment has an empty memory.
        parts = (pad_to_blocks(x, size) for x in _features(query, key, value, visibility.key_mask))
        query, key, value = (segment_heads(x, size, key.shape[2]) for x in parts)
        memory_before, _ = memories(key, value, bands.count(length), self.update == "delta")
        context = self._gated(local, query, split_memories(memory_before, key), size)
        return zero_masked(bands.join(context, length), visibility.query_mask)

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        """Returns an empty cache. Memories are float32, independent of `dtype`, as their sums grow with the sequence."""
        memory = ops.zeros((batch_size, num_heads, key_dim, value_dim + 1), dtype="float32")
        cache = init_window_cache(batch_size, self.segment_length, num_heads, key_dim, value_dim, dtype)
        return {**cache, "memory": memory, "pending": ops.zeros_like(memory)}

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
        mask = visibility.query_mask
        rotated, rotated_key = _rotate(position, query, key, visibility)
        keys, values, slots, following = extend_window_cache(cache, rotated_key, value, cache_index, mask)
        features = _features(query, key, value, mask)
        read = with_batch_axis(token_slots(cache_index, 1), ops.shape(query)[0]) % self.segment_length
        options = {"position": position, "training": training}
        step = self._step if query.shape[1] == 1 else self._steps
        context, memory = step(_NewTokens(rotated, keys, values, features, slots, read), cache, visibility, options)
        return ops.cast(zero_masked(context, mask), value.dtype), {**following, **memory}

    def _step(
        self, new: _NewTokens, cache: Cache, visibility: Visibility, options: Mapping[str, object]
    ) -> tuple[Tensor, Cache]:
        """Returns the context of one new token, and the next memories."""
        slots, read, key_heads = new.slots, new.read, new.keys.shape[2]
        own = dataclasses.replace(
            visibility,
            query_mask=None,
            key_mask=slots >= slots[:, -1:] - read,
            key_slots=slots,
            key_positions=slots,
        )
        local = self.softmax(new.query, new.keys, new.values, visibility=own, **options)
        past, pending = cache["memory"], cache["pending"]
        query, new_keys, new_values = (segment_heads(x, 1, key_heads) for x in new.features)
        context = self._gated(local, query, past, 1)
        memory_before, sums = memories(new_keys, new_values, 1, self.update == "delta", past, pending)
        assert sums is not None, "given the memories so far"
        tokens = 1 if visibility.query_mask is None else ops.cast(visibility.query_mask, "int32")
        ends = ops.expand_dims(read + tokens == self.segment_length, (2, 3))
        memory_before, sums = (
            ops.reshape(memory_before[:, 1], ops.shape(past)),
            ops.reshape(sums[:, 0], ops.shape(past)),
        )
        return context, {"memory": ops.where(ends, memory_before, past), "pending": ops.where(ends, 0.0, sums)}

    def _steps(
        self, new: _NewTokens, cache: Cache, visibility: Visibility, options: Mapping[str, object]
    ) -> tuple[Tensor, Cache]:
        """Returns as `_step` for any number of tokens; each row is shifted, so that its segments are aligned with blocks."""
        size, length, read = self.segment_length, ops.shape(new.query)[1], new.read
        count = block_count(length + size - 1, size)

        def aligned(x: Tensor, before: int | Tensor):
            """Shifts `(B, before + T, ...)`, with T new tokens at the end, to the start of the segment of the first."""
            x = pad_length(x, size - before, count * size - length)
            return take_rows(x, size - read, count * size)

        mask, key_heads = visibility.query_mask, new.keys.shape[2]
        total = read + (length if mask is None else ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True))
        offsets = ops.expand_dims(ops.arange(count * size, dtype="int32"), 0)
        slots = new.slots[:, size : size + 1] - read + offsets
        whole = Visibility(
            key_mask=offsets < total,
            causal=True,
            query_slots=slots,
            key_slots=slots,
            query_positions=slots,
            key_positions=slots,
        )
        bands = Bands(size, 0, 0)
        query, keys, values = aligned(new.query, 0), aligned(new.keys, size), aligned(new.values, size)
        local = self.softmax(
            *(bands.blocks(x) for x in (query, keys, values)),
            visibility=bands.visibility(whole, query, keys),
            **options,
        )
        query, new_keys, new_values = (segment_heads(aligned(x, 0), size, key_heads) for x in new.features)
        past = (cache["memory"], cache["pending"])
        memory_before, sums = memories(new_keys, new_values, count, self.update == "delta", *past)
        assert sums is not None, "given the memories so far"
        context = self._gated(local, query, split_memories(memory_before, new_keys), size)
        context = take_rows(bands.join(context, count * size), read, length)
        shape = ops.shape(cache["memory"])
        memory = ops.reshape(take_rows(memory_before, total // size, 1), shape)
        pending = ops.reshape(take_rows(pad_length(sums, 0, 1), total // size, 1), shape)
        return context, {"memory": memory, "pending": pending}

    def _gated(self, local: Tensor, query: Tensor, memory: Tensor, size: int):
        """Gates the local attention `(B · n, C, N, H)` with the memory where it is not empty."""
        read, is_some = read_memory(query, memory, size, local.shape[2])
        gate = ops.reshape(ops.sigmoid(ops.cast(self.gate, "float32")), (1, 1, -1, 1)) * is_some
        wide = ops.cast(local, "float32")
        return ops.cast(wide + gate * (read - wide), local.dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "segment_length": self.segment_length,
            "update": self.update,
            "gate_initializer": keras.initializers.serialize(self.gate_initializer),
        }


def _rotate(
    position: AttentionPosition | None, query: Tensor, key: Tensor, visibility: Visibility
) -> tuple[Tensor, Tensor]:
    if position is None:
        return query, key
    return position.rotate(query, key, visibility.query_positions, visibility.key_positions)


def _features(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None) -> _Features:
    """σ of queries and of keys (zeros for padding), and values with a column of ones for the normalizer; all float32."""
    query, key, value = (ops.cast(x, "float32") for x in (query, key, value))
    query, key = ops.elu(query) + 1.0, zero_masked(ops.elu(key) + 1.0, key_mask)
    return query, key, ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
