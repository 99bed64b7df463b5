"""Transformer-XL."""

from __future__ import annotations

import math

import keras

from keras_transformer.attention import SegmentRecurrentAttention
from keras_transformer.blocks import DecoderBlock, Residual
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import final_norm, make_feed_forward, padding_input, token_input
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation, Config

# Dai et al., section 4.1, and the authors' scripts: WikiText-103; memory and segment there have 150 and 384 tokens.
SIZES = {
    "standard": Size(16, 410, 10, 2100),
    "large": Size(18, 1024, 16, 4096),
}


def TransformerXL(
    size: str | Size,
    vocabulary_size: int,
    *,
    segment_length: int,
    memory_length: int,
    same_length: bool = False,
    position: str | Config | AttentionPosition | None = "transformer_xl",
    residual: str | Residual = "post",
    norm: str | keras.layers.Layer = "layer_norm",
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "relu",
    dropout: float = 0.0,
    name: str = "transformer_xl",
) -> keras.Model:
    """A decoder with segment-level recurrence: layers attend to the segment and to a memory of the previous ones.

    All segments of a row train in parallel; gradients stop at the start of a segment. Generation uses a cache of fixed
    size. The receptive field is `num_layers · memory_length` tokens.

    Args:
        size: "standard", "large", or a `Size`.
        vocabulary_size: int. V.
        segment_length: int >= 1. S. Rows of training data should have a multiple of S tokens.
        memory_length: int >= 1. M.
        same_length: bool. Whether every token attends to exactly M tokens, itself included.
        position: a name in `positions.ATTENTION_POSITIONS`, or an instance to copy for each layer.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        feedforward: "dense", "gated", or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; lengths below 1.

    Example:

    >>> from keras_transformer.models import Size
    >>> TransformerXL(Size(2, 16, 2, 32), vocabulary_size=100, segment_length=8, memory_length=8).output_shape
    (None, None, 16)

    Reference: Dai et al., Transformer-XL, arXiv 1901.02860. Each layer has its own biases u and v, an option of the
    authors' code. Embedding and softmax are not adaptive. The memory before the first segment is empty; the authors'
    training keeps that of the previous batch.
    """
    size = get_size(size, SIZES)
    # Layers
    embedding = _embedding(vocabulary_size, size.hidden_dim)
    attention = SegmentRecurrentAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        segment_length,
        memory_length,
        same_length=same_length,
        position=position,
        dropout=dropout,
        use_bias=False,
    )
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
    blocks = _blocks(size, attention, feedforward, activation, options)
    last_norm = final_norm(residual, norm)
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name="scale")(embedding(inputs["token_ids"]))
    x = Dropout(dropout, name="embedding_dropout")(x)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, x if last_norm is None else last_norm(x), name=name)


def _embedding(vocabulary_size: int, width: int) -> keras.layers.ReversibleEmbedding:
    """The token table, whose vectors are multiplied by `√D`."""
    initializer = keras.initializers.RandomNormal(stddev=width**-0.5)
    return keras.layers.ReversibleEmbedding(
        vocabulary_size, width, embeddings_initializer=initializer, name="token_embedding"
    )


def _blocks(
    size: Size,
    attention: keras.layers.Layer,
    feedforward: str | keras.layers.Layer,
    activation: Activation,
    options: Config,
) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            clone(attention, name="self_attention"),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            name=f"decoder_block_{index}",
            **options,
        )
        for index in range(size.num_layers)
    ]
