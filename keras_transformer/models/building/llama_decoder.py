"""The decoder of Llama and its relatives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras

from keras_transformer.attention import ScaledDot, SoftCappedDot
from keras_transformer.blocks import Residual
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.building.stack import of_block
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation


def llama_decoder(
    grouped: GroupedSize,
    vocabulary_size: int,
    *,
    norm: keras.layers.Layer,
    name: str,
    position: Rotary | None = None,
    rotates: Sequence[bool] | None = None,
    local_position: Rotary | None = None,
    window: int | Sequence[int | None] | None = None,
    scoring: str | keras.layers.Layer = "scaled_dot",
    attention_dropout: float = 0.0,
    use_sinks: bool = False,
    use_bias: bool = False,
    use_output_bias: bool | None = None,
    use_gate: bool = False,
    query_key_norm: keras.layers.Layer | None = None,
    mixers: Sequence[keras.layers.Layer | None] = (None,),
    activation: Activation = "silu",
    feedforward: keras.layers.Layer | Sequence[keras.layers.Layer] | None = None,
    residual: str | Residual = "pre",
    dropout: float = 0.0,
    embedding_dropout: float = 0.0,
    scale_embedding: bool | float = False,
) -> keras.Model:
    """Blocks of grouped-query attention with rotary positions, and gated feed-forwards.

    Args:
        grouped: `GroupedSize`.
        vocabulary_size: int. V.
        norm: norm layer to copy.
        name: str.
        position: `positions.Rotary`, or None for `Rotary(10000.0, "halves")`.
        rotates: sequence of bools that repeats over the blocks: whether a block has positions; None for all.
        local_position: `positions.Rotary` of the blocks with a window; None for `position`.
        window: int or None, or a sequence of these that repeats over the blocks: the sliding window; None for no window.
        scoring: a name in `attention.SCORINGS`, or an instance.
        attention_dropout: float in [0, 1). Of the attention weights.
        use_sinks: bool. Whether each head has a sink: see `attention.SoftmaxAttention`.
        use_bias: bool. Whether the query, key, value and output projections have biases.
        use_output_bias: bool or None. Overrides `use_bias` for the output projection.
        use_gate: bool. Whether attention has an output gate.
        query_key_norm: norm layer for each query and key head, or None.
        mixers: sequence that repeats over the blocks: a mixer to copy in place of attention, such as a recurrence; None for
            attention.
        activation: activation of the gate.
        feedforward: layer to copy, or a sequence of these that repeats over the blocks; None for a `GatedFeedForward` of
            `activation`.
        residual: a name in `blocks.RESIDUALS`, or an instance to copy.
        dropout: float in [0, 1). Of what attention and feed-forward give.
        embedding_dropout: float in [0, 1).
        scale_embedding: bool. Whether the token embeddings are multiplied by `√D`; or a float, another factor.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.
    """

    def mixer(index: int) -> keras.layers.Layer:
        other = of_block(mixers, index)
        if other is not None:
            return other
        window_of_block = of_block(window, index)
        is_local = window_of_block is not None and local_position is not None
        return rotary_attention(
            grouped,
            window=window_of_block,
            position=(local_position if is_local else position) or Rotary(layout="halves"),
            is_rotated=rotates is None or of_block(rotates, index),
            scoring=scoring,
            dropout=attention_dropout,
            use_sinks=use_sinks,
            query_key_norm=query_key_norm,
            use_bias=use_bias,
            use_output_bias=use_output_bias,
            use_gate=use_gate,
        )

    size = grouped.size
    return Decoder(
        size,
        vocabulary_size,
        position=None,
        residual=residual,
        norm=norm,
        embedding_scale=math.sqrt(size.hidden_dim) if scale_embedding is True else scale_embedding or None,
        attention=[mixer(index) for index in range(size.num_layers)],
        feedforward=GatedFeedForward(size.intermediate_dim, activation) if feedforward is None else feedforward,
        dropout=dropout,
        embedding_dropout=embedding_dropout,
        name=name,
    )


def capped_scoring(query_scale: float | None, soft_cap: float | None) -> keras.layers.Layer:
    """Scaled dot-product scoring, with a soft cap if one is given."""
    return ScaledDot(query_scale) if soft_cap is None else SoftCappedDot(soft_cap, query_scale)
