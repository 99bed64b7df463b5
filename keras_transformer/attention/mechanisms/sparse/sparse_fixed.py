"""Fixed sparse attention (Sparse Transformers)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility, combine
from keras_transformer.attention.mechanisms.sparse.masked_pattern import MaskedPattern
from keras_transformer.attention.mechanisms.sparse.sparse_strided import exclude_own_slot
from keras_transformer.attention.partition.bands import Bands
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.softmax.partial_softmax import AttentionOptions
    from keras_transformer.positions import AttentionPosition


@serializable
class FixedSparseAttention(MaskedPattern):
    """Fixed sparse attention to the query's own block and to the last positions of every block.

    Query i attends to key j if `⌊i / block_size⌋ = ⌊j / block_size⌋`, or if j is among the last `summary_size` positions
    of its block. Time and memory grow with `T · (block_size + T · summary_size / block_size)`, which is `T^1.5` for blocks
    of about `√T`. The result equals that of masked dense attention, for any length.

    Args:
        block_size: int >= 1. Should be about the square root of the length.
        summary_size: int in [1, block_size]. Positions of each block that all later queries attend to.
        summary_groups: int >= 1. Head n attends to the columns of group `n mod summary_groups`, counted from the end of
            the block; `summary_groups · summary_size <= block_size`.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions. The cache keeps all
    keys, so that it can go back to an earlier index; a new token is scored against each.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: sizes below 1, or summaries larger than a block; a call with scores, an `attention_mask` or other keys
            than queries.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 6, 1, 2))
    >>> values = np.arange(6.0).reshape(1, 6, 1, 1)
    >>> output = FixedSparseAttention(block_size=3, summary_size=1)(x, x, values)
    >>> np.array(output).ravel().round(2).tolist()  # Tokens 0 to 2 attend to 0, 1, 2 and 5.
    [2.0, 2.0, 2.0, 3.5, 3.5, 3.5]

    Reference: Child et al., Sparse Transformers, arXiv 1904.10509, section 4.3; the groups are the "distinct subblocks" of
    its heads. Without causality, a query attends to the summaries of all blocks.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})

    def __init__(
        self,
        block_size: int = 64,
        summary_size: int = 8,
        summary_groups: int = 1,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.block_size = positive("block_size", block_size)
        self.summary_size = positive("summary_size", summary_size)
        self.summary_groups = positive("summary_groups", summary_groups)
        if summary_groups * summary_size > block_size:
            raise ValueError(
                "The summaries must fit a block. Received: "
                f"block_size={block_size}, summary_size={summary_size}, summary_groups={summary_groups}"
            )

    @property
    def max_dense_queries(self) -> int:
        return self.block_size

    _columns = property(lambda self: self.summary_size * self.summary_groups)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self._num_heads = query_shape[2]
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
        options: AttentionOptions = {"position": position, "training": training}
        bands = Bands(self.block_size, 0, 0)
        own = partial_attention(
            self.softmax,
            bands.blocks(query),
            bands.blocks(key),
            bands.blocks(value),
            bands.visibility(visibility, query, key),
            position,
            training=training,
        )
        own = PartialAttention(*(bands.join(x, ops.shape(query)[1]) for x in own))
        return merge_parts([own, self._summaries(query, key, value, visibility, bands, options)])

    def _summaries(
        self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility, bands: Bands, options: AttentionOptions
    ):
        """Attention to the summary columns of other blocks; with causality, of earlier ones."""
        batch, length = ops.shape(query)[0], ops.shape(query)[1]
        key_mask = visibility.key_mask
        key_mask = ops.ones((batch, length), dtype="bool") if key_mask is None else key_mask
        positions = visibility.key_positions
        positions = ops.expand_dims(positions, 0) if len(positions.shape) == 1 else positions
        count = bands.count(length)
        query_blocks = ops.arange(length, dtype="int32") // self.block_size
        key_blocks = ops.reshape(ops.repeat(ops.arange(count, dtype="int32"), self._columns), (-1,))
        seen = Visibility(
            query_mask=visibility.query_mask,
            key_mask=self._last_columns(key_mask, bands),
            causal=visibility.causal,
            query_slots=query_blocks,
            key_slots=key_blocks,
            query_positions=visibility.query_positions,
            key_positions=self._last_columns(positions, bands),
        )
        seen = exclude_own_slot(seen)
        if self.summary_groups > 1:
            columns = ops.tile(ops.convert_to_tensor(self._columns_of_heads()), (1, count))  # (N, S)
            columns = ops.expand_dims(ops.expand_dims(columns, 1), 0)
            others = (
                None if seen.attention_mask is None else ops.expand_dims(ops.expand_dims(seen.attention_mask, 0), 0)
            )
            seen = dataclasses.replace(seen, attention_mask=combine(columns, others))
        key, value = self._last_columns(key, bands), self._last_columns(value, bands)
        return partial_attention(self.softmax, query, key, value, seen, **options)

    def _last_columns(self, x: Tensor, bands: Bands):
        """Returns the summary columns `(B, n · columns, ...)` of the blocks of `(B, T, ...)`."""
        columns = bands.blocks(x)[:, self.block_size - self._columns :]
        return ops.reshape(columns, (-1, bands.count(ops.shape(x)[1]) * self._columns, *x.shape[2:]))

    def _columns_of_heads(self):
        """Returns which summary columns each head attends to: boolean `(N, columns)`; the last is the end of the block."""
        groups = np.arange(self._columns)[::-1] // self.summary_size
        return groups[None] == (np.arange(self._num_heads) % self.summary_groups)[:, None]

    def mask(self, query_slots: Tensor, key_slots: Tensor) -> Tensor:
        """The pattern without causality: `(B, N | 1, T, S)`."""
        same = ops.equal(
            ops.expand_dims(query_slots, 2) // self.block_size, ops.reshape(key_slots, (1, 1, -1)) // self.block_size
        )
        from_end = self.block_size - 1 - ops.reshape(key_slots, (1, 1, -1)) % self.block_size
        heads = np.arange(self._num_heads if self.summary_groups > 1 else 1) % self.summary_groups
        group = ops.convert_to_tensor(heads.reshape(1, -1, 1).astype("int32"))
        summary = ops.equal(from_end // self.summary_size, group)  # (1, N | 1, S)
        return ops.logical_or(ops.expand_dims(same, 1), ops.expand_dims(summary, 2))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "block_size": self.block_size,
            "summary_size": self.summary_size,
            "summary_groups": self.summary_groups,
        }
