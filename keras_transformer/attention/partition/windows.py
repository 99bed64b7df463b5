"""Sliding-window attention with a dilation per head, as a part of a softmax."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.partition.bands import Bands, pad_length
from keras_transformer.attention.partition.strides import StridedSubsequences
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, partial_attention
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
    from keras_transformer.positions import AttentionPosition


@dataclasses.dataclass(frozen=True)
class DilatedWindow:
    """Attention to the keys at distances 0, d, 2d, ... below `window · d`, where d is the dilation of the head.

    Time and memory grow with `2.5 · T · window` (half of it where causal).

    Args:
        softmax: `SoftmaxAttention`.
        window: int >= 1. Attended keys of one side, the query's own included.
        dilations: sequence of N ints >= 1.
        position: an `AttentionPosition`, or None; one that adds to scores or values needs equal dilations.
        training: bool or None.
    """

    softmax: SoftmaxAttention
    window: int
    dilations: Sequence[int]
    position: AttentionPosition | None = None
    training: bool | None = None

    def part(self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility) -> PartialAttention:
        """The attention of whole sequences.

        Args:
            query: float `(B, T, N, H)`.
            key: float `(B, T, N, H)`, of the same tokens.
            value: float `(B, T, N, H_value)`.
            visibility: `masks.Visibility` without an attention mask; with consecutive slots.
        """
        kinds = sorted(set(self.dilations))
        if len(kinds) == 1:
            return self._dilated(kinds[0], query, key, value, visibility)
        heads = [[head for head, each in enumerate(self.dilations) if each == kind] for kind in kinds]
        parts = [
            self._dilated(
                kind,
                ops.take(query, chosen, axis=2),
                ops.take(key, chosen, axis=2),
                ops.take(value, chosen, axis=2),
                visibility,
            )
            for kind, chosen in zip(kinds, heads, strict=True)
        ]
        order = [head for chosen in heads for head in chosen]
        back = [order.index(head) for head in range(len(order))]
        return PartialAttention(
            *(ops.take(ops.concatenate(each, axis=2), back, axis=2) for each in zip(*parts, strict=True))
        )

    def new_part(self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility) -> PartialAttention:
        """The attention of T new queries, given also the keys of the `(window - 1) · max(dilations)` tokens before them.

        A few queries attend to all keys with a mask; many are split into blocks. The arguments are those of `part`, with
        keys and values `(B, (window - 1) · max(dilations) + T, N, H)`.
        """
        if query.shape[1] is not None and query.shape[1] < 2 * self.window:
            mask = window_mask_of_heads(visibility.query_slots, visibility.key_slots, self.window, self.dilations)
            return self._attend(query, key, value, dataclasses.replace(visibility, attention_mask=mask))
        # Queries are aligned with their keys; the outputs of past queries are dropped.
        before = (self.window - 1) * max(self.dilations)
        slots, positions = visibility.key_slots, visibility.key_positions
        visibility = dataclasses.replace(visibility, query_mask=None, query_slots=slots, query_positions=positions)
        part = self.part(pad_length(query, before, 0), key, value, visibility)
        return PartialAttention(*(x[:, before:] for x in part))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility) -> PartialAttention:
        return partial_attention(self.softmax, query, key, value, visibility, self.position, training=self.training)

    def _dilated(
        self, dilation: int, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility
    ) -> PartialAttention:
        if dilation == 1:
            return self._windowed(query, key, value, visibility)
        subsequences = StridedSubsequences(dilation)
        visibility = subsequences.visibility(visibility, key)
        queries, keys, values = (subsequences.fold(x) for x in (query, key, value))
        part = self._windowed(queries, keys, values, visibility)
        return PartialAttention(*(subsequences.unfold(x, ops.shape(key)[1]) for x in part))

    def _windowed(self, query: Tensor, key: Tensor, value: Tensor, visibility: Visibility) -> PartialAttention:
        bands = Bands.of_window(self.window, max(1, self.window // 2), visibility.causal)
        batch, length = ops.shape(key)[0], ops.shape(key)[1]
        key_mask = visibility.key_mask
        if key_mask is None:
            key_mask = ops.ones((batch, length), dtype="bool")
        # Slots within the bands: all blocks share one window mask.
        slots = ops.arange((bands.before + 1 + bands.after) * bands.block_size, dtype="int32")
        blocks = Visibility(
            query_mask=None if visibility.query_mask is None else bands.blocks(visibility.query_mask),
            key_mask=bands.neighbors(key_mask),
            causal=visibility.causal,
            window=self.window,
            query_slots=slots[bands.before * bands.block_size :][: bands.block_size],
            key_slots=slots,
        )
        if self.position is not None and self.position.needs:
            positions = [with_batch_axis(x, batch) for x in (visibility.query_positions, visibility.key_positions)]
            blocks = dataclasses.replace(
                blocks, query_positions=bands.blocks(positions[0]), key_positions=bands.neighbors(positions[1])
            )
        part = self._attend(bands.blocks(query), bands.neighbors(key), bands.neighbors(value), blocks)
        return PartialAttention(*(bands.join(x, length) for x in part))


def window_mask_of_heads(query_slots: Tensor, key_slots: Tensor, window: int, dilations: Sequence[int]) -> Tensor:
    """`(1 | B, N, T, S)`: the mask of `DilatedWindow`."""
    rates = ops.reshape(ops.convert_to_tensor(dilations, dtype="int32"), (1, -1, 1, 1))
    query_slots = ops.expand_dims(ops.expand_dims(query_slots, 1), 3)
    distances = ops.abs(query_slots - ops.expand_dims(ops.expand_dims(key_slots, 1), 2))
    kept = ops.equal(ops.mod(distances, rates), 0)
    return ops.logical_and(kept, distances < window * rates)
