"""The decoder block of a prefix language model."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_transformer.blocks.decoders.decoder_block import DecoderBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Outputs, Shape, Tensor


@serializable
class PrefixDecoderBlock(DecoderBlock):
    """Decoder block of a prefix language model: the tokens of the prefix attend to one another, all others are causal.

    Arguments: those of `DecoderBlock`; the mixer is a `MultiHeadAttention` with a mechanism that supports any mask.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token. With a cache it covers the new tokens.
        prefix_mask: boolean `(B, T)`, True for the first tokens of each row, which are its prefix; None for no prefix.
            Without a cache.
        others: as for `DecoderBlock`, without cross-attention.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Cache: what is read at `cache_index` 0 is the prefix, such as the whole prompt of a generated text; it must be read in
    one call. Later tokens are causal. A cache cannot return to an earlier index.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = PrefixDecoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> tuple(block(np.ones((1, 3, 8)), prefix_mask=np.array([[True, True, False]])).shape)
    (1, 3, 8)

    Reference: Raffel et al., T5, arXiv 1910.10683, section 3.2.1 and figure 4 (prefix language model).
    """

    cache_is_rewindable: Any = False
    reads_prompts_whole = True

    def build(self, inputs_shape: Shape) -> None:  # type: ignore[override]
        super().build(inputs_shape)

    def call(  # type: ignore[override]
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        prefix_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        condition: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        if cache is None:
            prefix_length = None if prefix_mask is None else _count(prefix_mask, padding_mask)
        else:
            count = ops.shape(inputs)[1] if padding_mask is None else _count(padding_mask)
            prefix_length = ops.where(ops.equal(cache_index, 0), count, 0)
        return super().call(
            inputs,
            padding_mask=padding_mask,
            positions=positions,
            cache=cache,
            cache_index=cache_index,
            condition=condition,
            prefix_length=prefix_length,
            training=training,
        )


def _count(*masks):
    """Returns the number of tokens of each row that are True in all masks: int32 `(B,)`."""
    product = 1
    for mask in masks:
        product = product if mask is None else product * ops.cast(mask, "int32")
    return ops.sum(product, axis=1)
