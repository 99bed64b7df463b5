"""Grouped-query attention with rotary positions, for the decoders of Llama and its relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras

from keras_transformer.attention import LocalAttention, MultiHeadAttention, ScaledDot, SoftCappedDot, SoftmaxAttention
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import choice

_BLOCK = 512


class GroupedSize(NamedTuple):
    """A `Size` with the number of key/value heads and the size of a head.

    Attributes:
        size: `Size`.
        num_key_value_heads: key/value heads K.
        key_dim: width of each head H.
    """

    size: Size
    num_key_value_heads: int
    key_dim: int


def get_grouped_size(
    size: str | Size,
    sizes: Mapping[str, GroupedSize],
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
) -> GroupedSize:
    """A `GroupedSize` from a name in `sizes`, or from a `Size` without groups.

    Raises:
        ValueError: unknown name, or heads that do not divide the width.
    """
    if isinstance(size, str):
        found = choice(size, sizes, argument="size")
    else:
        size = get_size(size, {})
        found = GroupedSize(size, size.num_heads, size.hidden_dim // size.num_heads)
    return GroupedSize(found.size, num_key_value_heads or found.num_key_value_heads, key_dim or found.key_dim)


def rotary_attention(
    grouped: GroupedSize,
    position: AttentionPosition | None,
    *,
    window: int | Sequence[int | None] | None = None,
    scoring: str | keras.layers.Layer = "scaled_dot",
    dropout: float = 0.0,
    use_sinks: bool = False,
    use_bias: bool = False,
    **options: Any,
) -> keras.layers.Layer | list[keras.layers.Layer]:
    """Attention layer as a template for the blocks of a stack.

    Args:
        grouped: `GroupedSize`.
        position: `positions.Rotary`, or another; None for no position.
        window: int: number of tokens that a query attends to, itself included; None for all previous tokens. A list returns
            a list of layers, which repeats over the blocks.
        scoring: a name in `attention.SCORINGS`, or an instance.
        dropout: float in [0, 1). Of the attention weights.
        use_sinks: bool. Whether each head has a sink: see `SoftmaxAttention`.
        use_bias: bool. Whether the query, key, value and output projections have biases.
        **options: other arguments of `MultiHeadAttention`.
    """
    if isinstance(window, (list, tuple)):
        shared: dict[str, Any] = {"scoring": scoring, "dropout": dropout, "use_sinks": use_sinks, "use_bias": use_bias}
        return [rotary_attention(grouped, position, window=each, **shared, **options) for each in window]
    return MultiHeadAttention(
        grouped.size.num_heads,
        grouped.key_dim,
        num_key_value_heads=grouped.num_key_value_heads,
        mechanism=_mechanism(window, scoring, dropout, use_sinks),
        position=position,
        use_bias=use_bias,
        **options,
    )


def _mechanism(window, scoring, dropout, use_sinks):
    # The name is part of the path of the sinks, so that it must not depend on other layers.
    options = {"scoring": scoring, "dropout": dropout, "use_sinks": use_sinks, "name": "mechanism"}
    if window is None:
        return SoftmaxAttention(**options)
    # Texts are usually shorter than the windows of large models: larger blocks would be mostly padding.
    return LocalAttention(window, min(_BLOCK, (window + 1) // 2), **options)


def capped_scoring(query_scale: float | None, soft_cap: float | None) -> keras.layers.Layer:
    """Scaled dot-product scoring, with a soft cap if one is given."""
    return ScaledDot(query_scale) if soft_cap is None else SoftCappedDot(soft_cap, query_scale)
