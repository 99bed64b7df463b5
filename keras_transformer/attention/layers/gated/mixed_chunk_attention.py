"""Mixed chunk attention: FLASH of Hua et al., gated attention that is quadratic within groups and linear across them."""

from __future__ import annotations

from typing import Unpack

from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.layers.gated.gated_unit import GatedUnit
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import block_count, pad_length, pad_to_blocks
from keras_transformer.attention.partition.chunks import chunk_length, running_sums
from keras_transformer.attention.token_mixer import zero_masked
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Tensor


@serializable
class MixedChunkAttention(GatedUnit):
    """Mixed chunk attention, FLASH of arXiv 2202.10447: `y = (u ⊙ (local + global)) W_o`, over groups of G tokens.

    It is not FlashAttention, which is an exact algorithm for softmax attention: see `MultiHeadAttention(flash_attention)`.

    `local_i = Σ_j max(q_i · k_j / G + bias_ij, 0)² v_j` over the tokens of the group of i (if causal, `j <= i`);
    `global_i = q'_i Σ_j k'_j v_jᵀ / n` over all n tokens; if causal, over those of earlier groups, divided by G.
    `u, v = silu(x W)`; q, k, q' and k' are the vector `silu(x W_z)` with own scales and offsets. Time grows with
    `T · (G + key_dim) · E`, memory with `T · (G + E)` and, for the causal sums, `T / G · key_dim · E`. The length need not
    be a multiple of G. Weights and sums are computed in float32 under every dtype policy.

    Args:
        intermediate_dim: int >= 1, or None for `2 D`. The width E of gate and values.
        key_dim: int >= 1. The width of queries and keys.
        group_size: int >= 1. G.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. A bias acts within groups. The authors
            use the bias of T5 ("relative_bias") and rotate all four vectors ("rotary").
        dropout: float in [0, 1). Dropout rate of the weights within groups.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: see `TokenMixer`. Causal or bidirectional. The cache holds the last G tokens, "recent_keys"
        `(B, 1, G, 2 key_dim)` and "recent_values" `(B, 1, G, E)`, and the sums over the groups before them, "state"
        `(B, 1, key_dim, E)` in float32. Its size does not depend on `max_length`.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: sizes below 1; an unsupported argument: cross-attention, scores or an `attention_mask`.

    Example:

    >>> import numpy as np
    >>> layer = MixedChunkAttention(key_dim=8, group_size=4, position="rotary")
    >>> x = np.ones((1, 10, 16), "float32")
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 10, 16)

    Reference: Hua et al., Transformer Quality in Linear Time, arXiv 2202.10447, section 3.2. Deviations: norm and residual
    belong to the block; scales start near 1; no token shift.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query"})
    uses = ("local_query", "global_query", "local_key", "global_key")

    def __init__(
        self,
        intermediate_dim: int | None = None,
        key_dim: int = 128,
        group_size: int = 256,
        position: str | Config | AttentionPosition | None = None,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(intermediate_dim, key_dim, position, dropout, kernel_initializer, seed, **kwargs)
        self.group_size = positive("group_size", group_size)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility
        value, gate, (query, key, global_query, global_key) = self._projected(x, visibility)
        value = zero_masked(value, visibility.key_mask)
        size, length = chunk_length(x, self.group_size), ops.shape(x)[1]
        groups = [_groups(each, size) for each in (query, key, value)]
        positions = [_groups_of_slots(p, x, size) for p in (visibility.query_positions, visibility.key_positions)]
        weights = self._weights(groups[0], groups[1], positions)
        if visibility.causal:
            order = ops.arange(size, dtype="int32")
            weights = weights * _as_float(ops.reshape(order, (1, 1, -1, 1)) >= ops.reshape(order, (1, 1, 1, -1)))
        context = ops.matmul(self._dropout_layer(weights, training=inputs.training), groups[2])
        if visibility.causal:
            chunks = block_count(length, size)
            sums = ops.matmul(ops.transpose(_groups(global_key, size), (0, 1, 3, 2)), groups[2])
            before, _ = running_sums(sums, chunks)
            context = context + ops.matmul(_groups(global_query, size), before / self.group_size)
            context = self._join(context, length)
        else:
            context = self._join(context, length) + self._over_all(global_query, global_key, value, visibility.key_mask)
        return self._finish(context, gate, visibility)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache of the last group and the sums. The sums are float32 under every dtype policy."""
        sizes = (2 * self.key_dim, self._width, dtype or self.compute_dtype)
        state = ops.zeros((batch_size, 1, self.key_dim, self._width), dtype="float32")
        return {**init_window_cache(batch_size, self.group_size, 1, *sizes), "state": state}

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, visibility = inputs.query, inputs.visibility
        value, gate, (query, key, global_query, global_key) = self._projected(x, visibility)
        value = ops.expand_dims(zero_masked(value, visibility.query_mask), 2)
        keys, mask = ops.concatenate([key, global_key], axis=-1), visibility.query_mask
        keys, value, slots, recent = extend_window_cache(inputs.cache, keys, value, inputs.cache_index, mask)
        length, size = ops.shape(x)[1], chunk_length(x, self.group_size)
        groups_of = _GroupPositions(self.group_size, size, visibility, slots, x)
        keys, value = (ops.cast(groups_of.windows(each), "float32") for each in (keys, value))
        query, global_query = _groups(query, size), _groups(global_query, size)
        key, global_key = keys[..., : self.key_dim], keys[..., self.key_dim :]
        positions = [_groups_of_slots(visibility.query_positions, x, size), groups_of.key_slots]
        weights = self._weights(query, key, positions) * groups_of.in_own_group()
        weights = self._dropout_layer(weights, training=inputs.training)
        products = ops.matmul(global_query, ops.transpose(global_key, (0, 1, 3, 2)))
        weights = weights + products * (groups_of.in_earlier_groups() / self.group_size)
        finished = ops.transpose(global_key, (0, 1, 3, 2)) * groups_of.in_finished_groups()
        before, state = running_sums(ops.matmul(finished, value), block_count(length, size), inputs.cache["state"])
        context = ops.matmul(weights, value) + ops.matmul(global_query, before / self.group_size)
        return self._finish(self._join(context, length), gate, visibility), {**recent, "state": state}

    def _projected(self, x, visibility):
        """Returns values and gate, `(B, T, E)`; local and global queries and keys, float32 `(B, T, 1, key_dim)`."""
        value, gate, (query, global_query, key, global_key) = self.project(x)
        rotated = (*self.rotate(query, key, visibility), *self.rotate(global_query, global_key, visibility))
        return ops.cast(value, "float32"), gate, [ops.cast(each, "float32") for each in rotated]

    def _weights(self, query, key, positions):
        """Returns weights `(B · n, 1, C, S)` for query `(B · n, 1, C, key_dim)` and key `(B · n, 1, S, key_dim)`."""
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) / self.group_size
        return ops.square(ops.relu(scores + self.bias(ops.transpose(query, (0, 2, 1, 3)), *positions)))

    def _over_all(self, query, key, value, mask):
        """Returns the bidirectional global part, `(B, T, E)`: every token reads the sums over all tokens."""
        query, key = (ops.reshape(x, (-1, ops.shape(value)[1], self.key_dim)) for x in (query, key))
        if mask is None:
            number = ops.cast(ops.shape(value)[1], "float32")
        else:
            number = ops.maximum(ops.sum(ops.cast(mask, "float32"), axis=1), 1.0)
            number = ops.expand_dims(number, (1, 2))
        return ops.matmul(query, ops.matmul(ops.transpose(key, (0, 2, 1)), value) / number)

    def _join(self, context, length):
        """Reshapes `(B · n, 1, C, E)` to `(B, T, E)`."""
        size = ops.shape(context)[2]
        return ops.reshape(context, (-1, block_count(length, size) * size, self._width))[:, :length]

    def _finish(self, context, gate, visibility):
        gated = gate * ops.cast(context, gate.dtype)
        return self._output_dense(zero_masked(gated, visibility.query_mask))

    def get_config(self) -> Config:
        return {**super().get_config(), "group_size": self.group_size}


class _GroupPositions:
    """Groups of new tokens, when each row of the batch starts at its own slot.

    New tokens are split into blocks of C tokens. A block reads itself and the G tokens before it, which contain the whole
    group of its first token.
    """

    def __init__(self, group_size: int, size: int | Tensor, visibility: Visibility, slots: Tensor, x: Tensor) -> None:
        self._group_size, self._size = group_size, size
        self._length = ops.shape(x)[1]
        self._blocks = block_count(self._length, size)
        slots = ops.broadcast_to(slots, (ops.shape(x)[0], group_size + self._length))
        self.key_slots = ops.reshape(self.windows(ops.expand_dims(slots, 2)), (-1, group_size + size))
        first = slots[:, group_size : group_size + 1]  # (B, 1)
        end = first + self._length
        if visibility.query_mask is not None:
            end = first + ops.sum(ops.cast(visibility.query_mask, "int32"), axis=1, keepdims=True)
        starts = first + ops.expand_dims(ops.arange(self._blocks, dtype="int32") * size, 0)  # (B, n)
        self._query_slots = ops.reshape(starts, (-1, 1)) + ops.expand_dims(ops.arange(size, dtype="int32"), 0)
        self._first_group = self._group(ops.reshape(ops.minimum(starts, end), (-1, 1, 1, 1)))
        self._next_group = self._group(ops.reshape(ops.minimum(starts + size, end), (-1, 1, 1, 1)))
        self._query_group = self._group(ops.expand_dims(self._query_slots, (1, 3)))
        self._key_group = self._group(ops.expand_dims(self.key_slots, (1, 2)))

    def windows(self, x: Tensor) -> Tensor:
        """`(B, G + T, ...)` to `(B · n, 1, G + C, W)`: each block with the G tokens before it."""
        width = x.shape[-1]
        x = pad_length(x, 0, self._blocks * self._size - self._length)
        before = ops.reshape(x[:, : self._blocks * self._group_size], (-1, 1, self._group_size, width))
        own = ops.reshape(x[:, self._group_size :], (-1, 1, self._size, width))
        return ops.concatenate([before, own], axis=2)

    def in_own_group(self) -> Tensor:
        """`(B · n, 1, C, G + C)`: mask of the tokens in the group of the query, up to the query."""
        not_after = ops.expand_dims(self.key_slots, (1, 2)) <= ops.expand_dims(self._query_slots, (1, 3))
        return _as_float(ops.logical_and(ops.equal(self._query_group, self._key_group), not_after))

    def in_earlier_groups(self) -> Tensor:
        """`(B · n, 1, C, G + C)`: mask of the tokens in earlier groups that are not in the sums before the block."""
        after_sums = self._key_group >= self._first_group
        return _as_float(ops.logical_and(after_sums, self._key_group < self._query_group))

    def in_finished_groups(self) -> Tensor:
        """`(B · n, 1, 1, G + C)`: mask of the tokens whose groups end within the block."""
        after_sums = self._key_group >= self._first_group
        return _as_float(ops.logical_and(after_sums, self._key_group < self._next_group))

    def _group(self, slots):
        # Shifted by G so that no dividend is negative: runtimes round negative quotients differently.
        return (slots + self._group_size) // self._group_size


def _groups(x, size):
    """`(B, T, ...)` to `(B · n, 1, C, W)`, padded with zeros at the end."""
    return ops.reshape(pad_to_blocks(x, size), (-1, 1, size, x.shape[-1]))


def _groups_of_slots(slots, x, size):
    """`(T,)` or `(1 | B, T)` to `(B · n, C)`."""
    slots = ops.expand_dims(slots, 0) if len(slots.shape) == 1 else slots
    slots = ops.broadcast_to(slots, ops.shape(x)[:2])
    return ops.reshape(pad_to_blocks(slots, size), (-1, size))


def _as_float(mask):
    return ops.cast(mask, "float32")
