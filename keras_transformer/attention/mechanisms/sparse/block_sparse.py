"""Block-sparse attention with a user-defined layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.sparse.masked_pattern import MaskedPattern
from keras_transformer.attention.partition.bands import block_count
from keras_transformer.attention.partition.block_layout import BlockLayout, join_blocks, scatter_blocks
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class BlockSparseAttention(MaskedPattern):
    """Block-sparse softmax attention, with a layout of the blocks of keys for each block of queries.

    Query i attends to key j if `layout[⌊i / block_size⌋, ⌊j / block_size⌋]`. Only the blocks of the layout
    are gathered and computed: time and memory grow with their number. Rows of the layout with similar numbers of blocks
    (within a factor of two) are computed together, so that a dense row does not add cost to the others. Sequences shorter
    than the layout use its upper left part. The result equals that of masked dense attention, for any length.

    Args:
        layout: boolean array-like `(n, n)`, or `(num_heads, n, n)` with one for each head: query blocks by key blocks. Or a
            function of n that returns it, registered with Keras if the model is saved; sequence lengths must then be
            static.
        block_size: int >= 1. Tokens of a block.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions (with a layout for each
    head, only those that rotate queries and keys). The cache keeps all keys; a few new tokens are scored against each.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: a layout that is not square, or of another number of heads; sequences longer than the layout; a call
            with scores, an `attention_mask` or other keys than queries.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 6, 1, 2))
    >>> values = np.arange(6.0).reshape(1, 6, 1, 1)
    >>> layout = [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    >>> output = BlockSparseAttention(layout, block_size=2)(x, x, values)
    >>> np.array(output).ravel().tolist()
    [0.5, 0.5, 2.5, 2.5, 2.5, 2.5]

    Reference: Gray et al., GPU kernels for block-sparse weights, 2017; Child et al., Sparse Transformers, arXiv 1904.10509,
    section 5.5.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})

    def __init__(
        self,
        layout: Any,
        block_size: int = 64,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        if isinstance(layout, dict):
            layout = keras.saving.deserialize_keras_object(layout)
        self.layout = layout if callable(layout) else _checked(layout)
        self.block_size = positive("block_size", block_size)
        if not callable(self.layout) and self.layout.ndim == 3:  # A bias covers all heads.
            self.supports = self.supports - {"bias", "query", "values"}

    @property
    def max_dense_queries(self) -> int:
        return self.block_size

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        if not callable(self.layout) and self.layout.ndim == 3 and len(self.layout) != query_shape[2]:
            raise ValueError(f"The layout has {len(self.layout)} heads, but the queries have {query_shape[2]}.")
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
        options = {"position": position, "training": training}
        layout = self._layout(query.shape[1])
        if layout.ndim == 2:
            return self._attend(layout, query, key, value, visibility, options)
        patterns, group = np.unique(layout, axis=0, return_inverse=True)
        contexts: list[Tensor] = []
        order: list[int] = []
        for index, pattern in enumerate(patterns):  # Heads with the same layout.
            heads = np.flatnonzero(group.ravel() == index)
            queries, keys, values = (_of_heads(x, heads, query.shape[2]) for x in (query, key, value))
            contexts.append(self._attend(pattern, queries, keys, values, visibility, options))
            order.extend(heads)
        return _of_heads(ops.concatenate(contexts, axis=2), np.argsort(order), query.shape[2])

    def _attend(
        self,
        layout: np.ndarray,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        options: Mapping[str, object],
    ):
        if visibility.causal:
            layout = np.tril(layout)
        length, heads = ops.shape(query)[1], (query.shape[2], value.shape[3])
        count = block_count(length, self.block_size)
        contexts, all_rows = [], []
        for rows, columns, valid in _buckets(layout):
            rows, columns, valid = (ops.convert_to_tensor(x) for x in (rows, columns, valid))
            if query.shape[1] is None:  # Rows within the sequences; at least one, as a tensor must not be empty.
                present = ops.maximum(ops.sum(ops.cast(rows < count, "int32")), 1)
                rows, columns, valid = rows[:present], columns[:present], valid[:present]
                valid = ops.logical_and(valid, columns < count)
            rows, columns, valid = (ops.expand_dims(x, 0) for x in (rows, columns, valid))
            table = BlockLayout(self.block_size, rows, columns, valid)
            contexts.append(table.attend(self.softmax, query, key, value, visibility, **options))
            all_rows.append(rows)
        if not contexts:
            return ops.zeros((ops.shape(query)[0], length, *heads), dtype=value.dtype)
        context, all_rows = ops.concatenate(contexts, axis=1), ops.concatenate(all_rows, axis=1)
        if query.shape[1] is None:
            context = scatter_blocks(context, ops.minimum(all_rows, count), count + 1)[:, :count]
        else:
            context = scatter_blocks(context, all_rows, count)
        return join_blocks(context, length, heads)

    def _layout(self, length: Tensor):
        """The layout for sequences of this length, as an array."""
        if length is None:
            if callable(self.layout):
                raise ValueError(
                    "A layout function needs sequences of static length. Pass the layout of the longest one as an array."
                )
            return self.layout
        count = block_count(length, self.block_size)
        layout = _checked(self.layout(count)) if callable(self.layout) else self.layout
        if layout.shape[-1] < count:
            raise ValueError(
                f"The layout has {layout.shape[-1]} blocks, for at most {layout.shape[-1] * self.block_size} tokens. "
                f"Received: sequences of {length} tokens."
            )
        return layout[..., :count, :count]

    def mask(self, query_slots: Tensor, key_slots: Tensor) -> Tensor:
        """The pattern without causality: `(B, N | 1, T, S)`."""
        layout = self._layout(key_slots.shape[0])
        layout = layout[None] if layout.ndim == 2 else layout
        keys = np.repeat(np.swapaxes(layout, 0, 1), self.block_size, axis=2)[..., : key_slots.shape[0]]
        rows = ops.take(ops.convert_to_tensor(keys), query_slots // self.block_size, axis=0)  # (B, T, N | 1, S)
        return ops.transpose(rows, (0, 2, 1, 3))

    def get_config(self) -> Config:
        layout = self.layout
        return {
            **super().get_config(),
            "layout": keras.saving.serialize_keras_object(layout) if callable(layout) else layout.astype(int).tolist(),
            "block_size": self.block_size,
        }


def _checked(layout: object):
    layout = np.asarray(layout).astype(bool)
    if layout.ndim not in (2, 3) or layout.shape[-1] != layout.shape[-2] or not layout.size:
        raise ValueError(f"layout must be (n, n) or (num_heads, n, n). Received an array of shape {layout.shape}")
    return layout


def _buckets(layout: np.ndarray):
    """Rows grouped by degree: their indices `(R,)`, padded blocks of keys `(R, degree)`, and which of those are valid."""
    degrees = layout.sum(axis=1)
    sizes = np.ceil(np.log2(np.maximum(degrees, 1))).astype(int)
    for size in np.unique(sizes[degrees > 0]):
        rows = np.flatnonzero((sizes == size) & (degrees > 0))
        width = degrees[rows].max()
        # Attended blocks first, in order.
        columns = np.argsort(~layout[rows], axis=1, kind="stable")[:, :width]
        valid = np.arange(width) < degrees[rows][:, None]
        yield rows.astype("int32"), columns.astype("int32"), valid


def _of_heads(x: Tensor, heads: np.ndarray, num_heads: int) -> Tensor:
    """These heads of `(B, T, N, H)`, or the key heads of `(B, S, K, H)` that these query heads use."""
    if x.shape[2] == 1:
        return x
    return ops.take(x, ops.convert_to_tensor((heads * x.shape[2] // num_heads).astype("int32")), axis=2)
