"""Segment-level recurrence of Transformer-XL."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.masks import with_batch_axis
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import pad_length, take_rows
from keras_transformer.attention.partition.memory_blocks import MemoryBlocks
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class SegmentRecurrentAttention(TokenMixer):
    """Segment-recurrent attention of Transformer-XL: causal attention of segments with a memory of the inputs before them.

    Each row is split into segments of S = `segment_length` tokens. With M = `memory_length`, token i attends to its segment
    and to the memory before it,

        y_i = Σ_j softmax_j(scores(q_i, k_j) + bias_ij) v_j   over   i - i mod S - M <= j <= i,

    where the keys and values of the memory are projected from inputs without gradient: training updates the projections,
    but not the layers below through the memory. Each layer of a stack extends the context by M tokens. All segments are
    computed in parallel: time and memory grow with `T · (M + S)`.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head, of queries, keys and values.
        segment_length: int >= 1. S.
        memory_length: int >= 1. M.
        same_length: bool. Whether each token attends to the last M tokens, including itself. Then segments only limit
            gradients. Defaults to False.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. One that adds to scores or values
            receives positions relative to the memory, and must depend only on distances. Defaults to "transformer_xl".
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases. Defaults to True.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`, for causal self-attention. `use_causal_mask` is True by default.

    Returns:
        The output `(B, T, D)`, or `(output, cache)`.

    Raises:
        ValueError: lengths below 1; an unsupported argument: `use_causal_mask=False`, cross-attention, an `attention_mask`,
            or scores.

    Masks: padding at any position; it counts as a token of its segment. The cache keeps keys and values of the last
    `M + S - 1` tokens. Its size does not depend on `max_length`. The division of a sequence into calls has no influence.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = SegmentRecurrentAttention(num_heads=2, key_dim=4, segment_length=3, memory_length=2)
    >>> tuple(layer(np.ones((1, 7, 8)), np.ones((1, 7, 8))).shape)
    (1, 7, 8)

    Reference: Dai et al., Transformer-XL, arXiv 1901.02860, section 3.2. The paper keeps inputs and projects them again in
    each segment. So does training here. Deviation: the cache keeps keys and values, because weights do not change then.
    """

    supports = frozenset({"causal", "cache", "bias", "query", "values"})

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        segment_length: int,
        memory_length: int,
        same_length: bool = False,
        position: str | Config | AttentionPosition | None = "transformer_xl",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.segment_length = positive("segment_length", segment_length)
        self.memory_length = positive("memory_length", memory_length)
        self.same_length = same_length
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.softmax = SoftmaxAttention(dropout=dropout, seed=seed, dtype=self.dtype_policy)
        self._blocks = MemoryBlocks(segment_length, memory_length)
        self._kept = memory_length + segment_length - 1
        self._window = memory_length if same_length else None

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        for name in ("query", "key", "value"):
            dense = split_heads(self, name, self.num_heads, self.key_dim)
            dense.build(query_shape)
            setattr(self, f"_{name}_dense", dense)
        heads = (*query_shape[:2], self.num_heads, self.key_dim)
        build_once(self.softmax, heads, heads, heads)
        if self.position is not None:
            build_once(self.position, heads, heads)
        self._output_dense = join_heads(self, "attention_output", query_shape[-1])
        self._output_dense.build(heads)

    output_dense = property(lambda self: self._output_dense)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility
        query, key, value = self._heads(x, visibility.query_positions)
        if _is_at_most(x, self.segment_length):  # One segment, and no memory.
            visible = dataclasses.replace(visibility, window=self._window)
            context = self.softmax(
                query, key, value, visibility=visible, position=self.position, training=inputs.training
            )
            return self._output_dense(context)
        _, *remembered = self._heads(ops.stop_gradient(x), visibility.query_positions)
        (batch, length), memory, blocks = ops.shape(x)[:2], self.memory_length, self._blocks
        mask, block_positions = visibility.key_mask, None
        mask = ops.ones((batch, length), dtype="bool") if mask is None else ops.cast(mask, "bool")
        if _are_given(visibility):
            positions = with_batch_axis(visibility.query_positions, batch)
            block_positions = blocks.pad(positions), blocks.pad(positions, memory)
        own, remembered = [blocks.pad(x) for x in (key, value)], [blocks.pad(x, memory) for x in remembered]
        context = self._attend(
            blocks.pad(query), own, remembered, blocks.pad(mask, memory), block_positions, inputs.training
        )
        return self._output_dense(context[:, :length])

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, visibility = inputs.query, inputs.visibility
        query, key, value = self._heads(x, visibility.query_positions)
        key, value, slots, following = extend_window_cache(
            inputs.cache, key, value, inputs.cache_index, visibility.query_mask
        )
        visibility = dataclasses.replace(
            visibility, key_slots=slots, key_positions=self._key_positions(visibility, slots)
        )
        attend = self._attend_few if _is_at_most(x, self.segment_length) else self._attend_many
        return self._output_dense(attend(query, key, value, visibility, inputs.training)), following

    def _attend_few(self, query, key, value, visibility, training):
        """Returns the context of new tokens, with segments as a mask over cached and new keys."""
        query_slots, key_slots, mask = visibility.query_slots, visibility.key_slots, None
        if not self.same_length:
            first = query_slots - ops.mod(query_slots, self.segment_length) - self.memory_length
            mask = ops.greater_equal(ops.expand_dims(key_slots, 1), ops.expand_dims(first, 2))
        visible = dataclasses.replace(visibility, key_mask=key_slots >= 0, attention_mask=mask, window=self._window)
        return self.softmax(query, key, value, visibility=visible, position=self.position, training=training)

    def _attend_many(self, query, key, value, visibility, training):
        """Returns the context of new tokens, split into segments from the slot of each row on."""
        (batch, length), blocks, padding = ops.shape(query)[:2], self._blocks, self.segment_length - 1
        aligned, offsets = blocks.aligned_length(length), ops.mod(visibility.query_slots[:, :1], self.segment_length)

        def of_queries(x: Tensor) -> Tensor:
            return blocks.align(pad_length(x, padding, 0), offsets, aligned, padding)

        def of_keys(x: Tensor) -> Tensor:
            return blocks.align(x, offsets, aligned, self._kept)

        block_positions = None
        if _are_given(visibility):
            positions = (with_batch_axis(x, batch) for x in (visibility.query_positions, visibility.key_positions))
            block_positions = tuple(move(x) for move, x in zip((of_queries, of_keys), positions, strict=True))
        remembered = [of_keys(x) for x in (key, value)]
        own = [x[:, self.memory_length :] for x in remembered]
        seen = of_keys(with_batch_axis(visibility.key_slots, batch)) >= 0
        context = self._attend(of_queries(query), own, remembered, seen, block_positions, training)
        return take_rows(context, offsets, length)

    def _attend(self, query, own, remembered, seen, positions, training):
        """Returns the context `(B, n · S, N, H)`.

        Args:
            query: `(B, n · S, N, H)`.
            own: keys and values, `(B, n · S, N, H)` each.
            remembered: keys and values of the memory, `(B, M + n · S, N, H)` each, the first M before all queries.
            seen: boolean `(B, M + n · S)`: False for padding.
            positions: the positions of queries and keys, in their shapes, or None for their order.
            training: bool or None.
        """
        blocks = self._blocks
        key, value = (blocks.keys(*pair) for pair in zip(remembered, own, strict=True))
        visibility = blocks.visibility(seen, positions, self._window)
        options = {"visibility": visibility, "position": self.position, "training": training}
        context = self.softmax(blocks.segments(query), key, value, **options)
        return ops.reshape(context, (-1, ops.shape(query)[1], self.num_heads, self.key_dim))

    def _heads(self, x, positions):
        query, key, value = (dense(x) for dense in (self._query_dense, self._key_dense, self._value_dense))
        if self.position is not None:
            query, key = self.position.rotate(query, key, positions, positions)
        return query, key, value

    def _key_positions(self, visibility, slots):
        """Returns the positions of cached and new keys. Cached keys precede the first new one consecutively."""
        if not _are_given(visibility):
            return slots
        positions = with_batch_axis(visibility.query_positions)
        kept = positions[:, :1] + ops.expand_dims(ops.arange(-self._kept, 0, dtype=positions.dtype), 0)
        return ops.concatenate([kept, positions], axis=1)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache for the last `M + S - 1` tokens."""
        measures = (self.num_heads, self.key_dim, self.key_dim, dtype or self.compute_dtype)
        return init_window_cache(batch_size, self._kept, *measures)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "segment_length": self.segment_length,
            "memory_length": self.memory_length,
            "same_length": self.same_length,
            "position": serialize(self.position),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }


def _are_given(visibility):
    """Returns whether positions differ from the order of the tokens."""
    return visibility.query_positions is not visibility.query_slots


def _is_at_most(x, length):
    return x.shape[1] is not None and x.shape[1] <= length
