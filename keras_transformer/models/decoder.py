"""A decoder-only stack."""

from __future__ import annotations

import keras

from keras_transformer.blocks import DecoderBlock, DeepNormResidual, Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    block_attention,
    final_norm,
    first_layer,
    make_attention,
    make_blocks,
    make_feed_forward,
    make_norm,
    resolve_residual,
    split_position,
    token_model,
)
from keras_transformer.utils.types import Activation, AttentionLike, PositionLike

# Radford et al., Language Models are Unsupervised Multitask Learners (GPT-2), table 2.
SIZES = {
    "small": Size(12, 768, 12, 3072),
    "medium": Size(24, 1024, 16, 4096),
    "large": Size(36, 1280, 20, 5120),
    "xl": Size(48, 1600, 25, 6400),
}


def Decoder(
    size: str | Size,
    vocabulary_size: int,
    *,
    max_sequence_length: int = 1024,
    position: PositionLike = "learned",
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "layer_norm",
    embedding_scale: float | None = None,
    embedding_norm: bool = False,
    attention: AttentionLike = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    embedding_dropout: float | None = None,
    packed: bool = False,
    num_block_groups: int | None = None,
    name: str = "decoder",
) -> keras.Model:
    """A stack of causal decoder blocks over token ids. `tasks.LanguageModel` adds a head.

    Args:
        size: "small", "medium", "large", "xl" (the measures of GPT-2), or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of a learned position embedding.
        position: "learned", "sinusoidal", "rotary", an instance, or None.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: a name in `blocks.NORMS`, or a layer to copy.
        embedding_scale: float, or None for 1. Factor of the token embeddings.
        embedding_norm: bool. Whether the sum of token and position is normalized, before its dropout.
        attention: a name in `attention.MECHANISMS`; or a layer like `MultiHeadAttention` to copy for each block,
            with its own position; or a list of either, which repeats over the blocks.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        embedding_dropout: float in [0, 1), or None for `dropout`.
        packed: bool. Whether it trains on rows of several documents (`data.pack`), none of which sees another: it takes
            "segment_ids" and "positions", int32 `(B, T)`, too. Generation is the same as without.
        num_block_groups: int, or None. Number of blocks with weights of their own; consecutive layers share a block, and
            each layer has its own cache. ALBERT has 1. Default None: a block for each layer.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; `num_block_groups` above the number of layers.

    Example:

    >>> from keras_transformer.models import Size
    >>> Decoder(Size(2, 16, 2, 32), vocabulary_size=100, position="rotary", norm="rms_norm").output_shape
    (None, None, 16)

    Reference: Radford et al., GPT-2, section 2.3 (pre-norm, a norm at the end), with the options above.
    """
    size = get_size(size, SIZES)
    embedding_position, attention_position = split_position(position, max_sequence_length)
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    residual = resolve_residual(residual, norm, DeepNormResidual.of_stack, size.num_layers)

    def make_block(index):
        return DecoderBlock(
            make_attention(size, block_attention(attention, index), attention_position, dropout),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            residual=residual,
            norm=norm,
            dropout=dropout,
            name=f"decoder_block_{index}",
        )

    blocks = make_blocks(make_block, size.num_layers, num_block_groups)
    return token_model(
        embedding,
        embedding_position,
        blocks,
        final_norm(residual, norm),
        dropout=dropout if embedding_dropout is None else embedding_dropout,
        packed=packed,
        name=name,
        input_layer=first_layer(residual),
        scale=embedding_scale,
        first_norm=make_norm(norm, "embedding_norm") if embedding_norm else None,
    )
