"""Blockwise attention: exact softmax attention in linear memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import ALL_CAPABILITIES, Mechanism
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.attention.softmax.counter_based_dropout import CounterBasedDropout
from keras_transformer.attention.softmax.tile_position import TilePosition
from keras_transformer.attention.softmax.tiled_attention import tiled_attention
from keras_transformer.attention.softmax.tiles import Tiles
from keras_transformer.backend.kernels.ring_attention import ring_attention, ring_of_distribution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class BlockwiseAttention(Mechanism):
    """Exact softmax attention, `softmax(Q Kᵀ scale + bias) V`, in memory linear in length, forward and backward.

    It computes one tile (a block of queries by a block of keys) at a time, with running maxima and sums for the softmax. The
    backward pass recomputes the weights. Time grows with `T · S` (tiles that are masked by causality or a
    `sliding_window` are skipped), memory with `T + S` and one tile of `query_block_size · block_size` scores for
    each head. If Keras has a fused kernel of linear memory (PyTorch, JAX on a GPU) and the only mask is causal, that
    kernel is used. On devices that share rows (`sequence_parallel` of `training.distributed`), it is ring attention: keys
    and values pass from device to device.

    Args:
        query_block_size: int >= 1. Queries of a tile. Affects the cost only.
        block_size: int >= 1. Keys of a tile. Affects the cost only.
        scale: float, or None for `1 / √H`.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. All masks, causal and bidirectional, self- and cross-attention, and all positions:
    biases are computed tile by tile, and the gradients of their weights are summed over the tiles. The cache keeps all keys.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: a block size below 1; a call with scores.

    Limits: no second-order gradients. A graph for a dynamic number of new tokens with a cache of static size builds their
    scores: process long prompts in chunks.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1, 9, 2, 4)).astype("float32")
    >>> blockwise = BlockwiseAttention(query_block_size=4, block_size=2)(x, x, x)
    >>> bool(np.allclose(blockwise, SoftmaxAttention()(x, x, x), atol=1e-6))
    True

    Reference: Rabe and Staats, Self-attention does not need O(n²) memory, arXiv 2112.05682; Dao et al., FlashAttention,
    arXiv 2205.14135, algorithms 1 and 4; Liu et al., Ring Attention, arXiv 2310.01889, algorithm 1.
    """

    supports = ALL_CAPABILITIES - {"scores"}

    def __init__(
        self,
        query_block_size: int = 512,
        block_size: int = 512,
        scale: float | None = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.query_block_size = positive("query_block_size", query_block_size)
        self.block_size = positive("block_size", block_size)
        self.scale = scale
        self.dropout = dropout
        self.seed = seed
        self.softmax = SoftmaxAttention(
            ScaledDot(scale, dtype=self.dtype_policy), dropout, seed=seed, dtype=self.dtype_policy
        )
        self._seeds = keras.random.SeedGenerator(seed) if dropout > 0 else None

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self.softmax.build(query_shape, key_shape, value_shape)

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
        ring = self._ring(query, key, visibility, position, training)
        if ring is not None:
            context = ring_attention(query, key, value, ring, visibility.key_mask, visibility.causal, self.scale)
            return _masked(context, visibility.query_mask)
        if self._is_small(query, key) or self.softmax.avoids_scores(query, key, value, visibility, position, training):
            return self.softmax(query, key, value, visibility=visibility, position=position, training=training)
        lengths, sizes, counts = self._block_sizes(query, key)
        padding = [size * count - length for size, count, length in zip(sizes, counts, lengths, strict=True)]
        dropout = CounterBasedDropout(self.dropout, self._seeds.next()) if training and self._seeds else None
        tiles = Tiles(
            tuple(sizes), tuple(counts), _padded(visibility, lengths, padding), TilePosition(position), dropout
        )
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        key = _heads_first(key * ops.cast(scale, key.dtype), padding[1])
        context = tiled_attention(_heads_first(query, padding[0]), key, _heads_first(value, padding[1]), tiles)
        context = ops.transpose(context, (0, 2, 1, 3))[:, : lengths[0]]
        context = _masked(context, visibility.query_mask)
        return ops.reshape(context, (-1, lengths[0], query.shape[2], value.shape[3]))

    def _ring(
        self,
        query: Tensor,
        key: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        training: bool | None,
    ):
        """The devices that rows are split over, if the distribution splits rows and ring attention applies; or None."""
        is_plain = visibility.attention_mask is None and visibility.window is None and visibility.starts_at_zero
        if not is_plain or (position is not None and position.needs) or (training and self.dropout > 0):
            return None
        return ring_of_distribution(query, key)

    def _is_small(self, query: Tensor, key: Tensor):
        """Whether the scores fit one tile; or, in a graph, are those of new tokens with a cache, which are few."""
        length, key_length = query.shape[1], key.shape[1]
        if length is None or key_length is None:
            return length is None and key_length is not None
        return length * key_length <= self.query_block_size * self.block_size

    def _block_sizes(self, query: Tensor, key: Tensor):
        """Lengths, block sizes and numbers of blocks, of queries and keys: ints if the lengths are static."""
        lengths = [ops.shape(x)[1] for x in (query, key)]
        sizes = [_minimum(*pair) for pair in zip((self.query_block_size, self.block_size), lengths, strict=True)]
        return lengths, sizes, [block_count(*pair) for pair in zip(lengths, sizes, strict=True)]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "query_block_size": self.query_block_size,
            "block_size": self.block_size,
            "scale": self.scale,
            "dropout": self.dropout,
            "seed": self.seed,
        }


def _masked(context: Tensor, query_mask: Tensor | None):
    """`(B, T, N, H)` with zeros for False queries."""
    if query_mask is None:
        return context
    return context * ops.expand_dims(ops.expand_dims(ops.cast(query_mask, context.dtype), 2), 3)


def _minimum(size: int, length: Tensor):
    return min(size, length) if isinstance(length, int) else ops.minimum(size, length)


def _heads_first(x: Tensor, padding: int | Tensor):
    """`(B, T, N, H)` to `(B, N, T + padding, H)`."""
    return ops.transpose(pad_length(x, 0, padding), (0, 2, 1, 3))


def _padded(visibility: Visibility, lengths, padding: Sequence[int | Tensor]) -> Visibility:
    """The visibility of sequences with padding at the end, whose keys are masked."""
    key_mask = visibility.key_mask
    if key_mask is None and not (isinstance(padding[1], int) and padding[1] == 0):
        key_mask = ops.ones((1, lengths[1]), dtype="bool")
    slots = [_pad_slots(x, n) for x, n in zip((visibility.query_slots, visibility.key_slots), padding, strict=True)]
    positions = [
        _pad_slots(x, n) for x, n in zip((visibility.query_positions, visibility.key_positions), padding, strict=True)
    ]
    return dataclasses.replace(
        visibility,
        query_mask=None,
        key_mask=None if key_mask is None else pad_length(ops.cast(key_mask, "bool"), 0, padding[1]),
        attention_mask=_padded_mask(visibility.attention_mask, padding),
        query_slots=slots[0],
        key_slots=slots[1],
        query_positions=positions[0],
        key_positions=positions[1],
    )


def _pad_slots(slots: Tensor, padding: int | Tensor):
    """Pads `(T,)` or `(B, T)` at the end with zeros, which are masked or cut off."""
    zeros = ops.zeros((*ops.shape(slots)[:-1], padding), dtype="int32")
    return ops.concatenate([ops.cast(slots, "int32"), zeros], axis=-1)


def _padded_mask(mask: Tensor | None, padding: Sequence[int | Tensor]):
    """Pads `(T, S)`, `(B, T, S)` or `(B, N, T, S)` at the ends with False."""
    if mask is None:
        return None
    rank, padded = len(mask.shape), ops.cast(mask, "bool")
    for axis, count in zip((rank - 2, rank - 1), padding, strict=True):
        if padded.shape[axis] != 1:
            shape = [count if at == axis else size for at, size in enumerate(ops.shape(padded))]
            padded = ops.concatenate([padded, ops.zeros(shape, dtype="bool")], axis=axis)
    return padded
