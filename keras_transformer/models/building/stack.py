"""Layers and graphs that architectures share: inputs, attention and feed-forward from templates, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.attention import MECHANISMS, MultiHeadAttention
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.blocks import NORMS, RESIDUALS, Residual
from keras_transformer.feedforward import FEEDFORWARDS
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.size import Size
from keras_transformer.positions import ATTENTION_POSITIONS, EMBEDDING_POSITIONS, AttentionPosition, Learned
from keras_transformer.utils.serialization import choice, clone, resolve
from keras_transformer.utils.types import Activation, LayerLike, PositionLike


def token_input(name: str = "token_ids") -> keras.KerasTensor:
    """A symbolic input of token ids, int32 `(B, T)`."""
    return keras.Input((None,), dtype="int32", name=name)


def padding_input(name: str = "padding_mask", optional: bool = True) -> keras.KerasTensor:
    """A symbolic padding mask, boolean `(B, T)`, True = a real token.

    If it is optional, None stands for rows without padding: attention then has no mask beside causality, for which fused
    kernels need no tensor. Only layers may take it, because operations of `keras.ops` do not take None.
    """
    return keras.Input((None,), dtype="bool", name=name, optional=optional)


def mask_positions(padding_mask: keras.KerasTensor) -> keras.KerasTensor:
    """Positions that count real tokens only, int32 `(B, T)`; -1 at padding."""
    is_real = ops.cast(padding_mask, "int32")
    return ops.cumsum(is_real, axis=1) * is_real - 1


def split_position(
    position: PositionLike, max_sequence_length: int
) -> tuple[keras.layers.Layer | None, AttentionPosition | None]:
    """Sorts a position into those added to the embedding and those inside attention.

    Args:
        position: a name in either dict of `positions`, an instance of either kind, or None; or a pair of one of each kind.
        max_sequence_length: int: rows of the table of "learned"; 0 where "learned" is not supported.

    Returns:
        `(embedding_position, attention_position)`; one of them None, unless a pair is given.
    """
    if isinstance(position, (list, tuple)):
        added, inside = position
        return split_position(added, max_sequence_length)[0], split_position(inside, max_sequence_length)[1]
    if position == "learned":
        return Learned(max_sequence_length, name="position_embedding"), None
    position = resolve(position, EMBEDDING_POSITIONS | ATTENTION_POSITIONS, keras.layers.Layer, argument="position")
    # A copy: models do not share the weights of an instance, blocks of a model may.
    return (None, clone(position, name=position.name)) if isinstance(position, AttentionPosition) else (position, None)


def make_attention(
    size: Size,
    template: LayerLike | None = None,
    position: AttentionPosition | None = None,
    dropout: float = 0.0,
    name: str = "self_attention",
) -> keras.layers.Layer:
    """Attention for one block: a copy of a template, or `MultiHeadAttention` with a mechanism by name."""
    if not (template is None or isinstance(template, str)):
        return clone(template, name=name)
    if template is not None:
        choice(template, MECHANISMS, argument="attention")
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        dropout=dropout,
        position=position if getattr(position, "is_shared", False) else clone(position),
        mechanism=template or "softmax",
        name=name,
    )


def of_block(templates: Any, index: int) -> Any:
    """The template of the block at `index`: the only one, or an item of a list that repeats."""
    return templates[index % len(templates)] if isinstance(templates, (list, tuple)) else templates


def make_cross_attention(size: Size, template: LayerLike | None = None, dropout: float = 0.0) -> keras.layers.Layer:
    """Cross-attention: as `make_attention`, but softmax if the mechanism supports self-attention only."""
    if isinstance(template, str):
        mechanism: type[Mechanism] = choice(template, MECHANISMS, argument="attention")
        template = template if "cross" in mechanism.supports else None
    elif "cross" not in getattr(template, "supports", {"cross"}):
        template = clone(template, mechanism="softmax") if isinstance(template, MultiHeadAttention) else None
    return make_attention(size, template, dropout=dropout, name="cross_attention")


def make_feed_forward(
    intermediate_dim: int, feedforward: str | keras.layers.Layer | None, activation: Activation, **options: Any
) -> keras.layers.Layer:
    """Feed-forward for one block: by name with an activation and `options`, or a copy of an instance; None for None."""
    options |= {"intermediate_dim": intermediate_dim, "activation": activation}
    return clone(resolve(feedforward, FEEDFORWARDS, argument="feedforward", **options), name="feedforward")


def make_norm(norm: str | keras.layers.Layer, name: str) -> keras.layers.Layer:
    """A new norm, by name or as a copy of an instance."""
    return clone(resolve(norm, NORMS, keras.layers.Layer, argument="norm"), name=name)


def make_blocks(
    make_block: Callable[[int], keras.layers.Layer],
    num_layers: int,
    num_groups: int | None = None,
    blocks_per_group: int = 1,
) -> list[keras.layers.Layer]:
    """The blocks of a stack in order, with or without shared weights of consecutive layers.

    Args:
        make_block: function from an index to a block.
        num_layers: int.
        num_groups: int in [1, `num_layers / blocks_per_group`]: number of distinct groups of blocks. None for one group
            for each `blocks_per_group` layers, so that nothing is shared.
        blocks_per_group: int that divides `num_layers`: the blocks of a group, which is applied several times in a row.

    Returns:
        list of `num_layers` blocks.

    Raises:
        ValueError: `num_groups` out of range; `blocks_per_group` does not divide the number of layers.
    """
    if blocks_per_group < 1 or num_layers % blocks_per_group:
        raise ValueError(
            f"blocks_per_group must divide the number of layers, {num_layers}. Received: {blocks_per_group}"
        )
    runs = num_layers // blocks_per_group  # How often a group is applied.
    num_groups = runs if num_groups is None else num_groups
    if not 1 <= num_groups <= runs:
        raise ValueError(
            f"num_block_groups must be in [1, {runs}], the number of layers"
            + ("" if blocks_per_group == 1 else f" divided by blocks_per_group={blocks_per_group}")
            + f". Received: {num_groups}"
        )
    blocks = [make_block(index) for index in range(num_groups * blocks_per_group)]
    groups = [run * num_groups // runs for run in range(runs)]
    return [blocks[group * blocks_per_group + index] for group in groups for index in range(blocks_per_group)]


def resolve_residual(
    residual: str | Residual, norm: str | keras.layers.Layer, scheme: Callable[..., Residual], *depths: int
) -> str | Residual:
    """The residual scheme of a model; "deepnorm" is built by `scheme` from the depths."""
    return scheme(*depths, norm=norm) if residual == "deepnorm" else residual


def first_layer(residual: str | Residual, name: str = "open_streams") -> keras.layers.Layer | None:
    """The layer that the residual scheme needs before a stack, or None."""
    return resolve(residual, RESIDUALS, Residual, argument="residual").stack_input_layer(name=name)


def final_norm(
    residual: str | Residual, norm: str | keras.layers.Layer, name: str = "final_norm"
) -> keras.layers.Layer | None:
    """The final norm of a stack, or None if the residual scheme normalizes its output."""
    return resolve(residual, RESIDUALS, Residual, argument="residual").stack_output_layer(norm, name=name)


def token_model(
    embedding: keras.layers.Layer,
    position: keras.layers.Layer | None,
    blocks: Sequence[keras.layers.Layer],
    last_norm: keras.layers.Layer | None,
    *,
    dropout: float,
    packed: bool,
    name: str,
    input_layer: keras.layers.Layer | None = None,
    scale: float | None = None,
    first_norm: keras.layers.Layer | None = None,
) -> keras.Model:
    """The graph of a decoder: token ids, embedding, position, blocks, final norm.

    Args:
        embedding: layer from token ids to vectors.
        position: layer that adds positions to them, or None.
        blocks: list of blocks, called with a padding mask.
        last_norm: layer after the blocks, or None.
        dropout: float. Of the embedding.
        packed: bool. Whether rows contain several documents, with attention within each document.
        name: str.
        input_layer: layer before the blocks, or None.
        scale: float: factor of the token embeddings, or None.
        first_norm: layer after the position, before the dropout, or None.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, or None} to `(B, T, D)`; if packed,
        also with the inputs "segment_ids" and "positions", int32 `(B, T)`.
    """
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    positions, masks = {}, {"padding_mask": inputs["padding_mask"]}
    if packed:
        inputs |= {"segment_ids": token_input("segment_ids"), "positions": token_input("positions")}
        positions = {"positions": inputs["positions"]}
        masks |= {"segment_ids": inputs["segment_ids"]}
    x = embedding(inputs["token_ids"])
    x = x if scale is None else keras.layers.Rescaling(scale, name="embedding_scale")(x)
    x = x if position is None else position(x, **positions)
    x = x if first_norm is None else first_norm(x)
    x = Dropout(dropout, name="embedding_dropout")(x)
    x = x if input_layer is None else input_layer(x)
    for block in blocks:
        x = block(x, **masks, **positions)
    x = x if last_norm is None else last_norm(x)
    return keras.Model(inputs, x, name=name)
