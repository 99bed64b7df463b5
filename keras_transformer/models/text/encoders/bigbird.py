"""BigBird."""

from __future__ import annotations

import keras

from keras_transformer.attention import BigBirdAttention, MultiHeadAttention
from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.utils.types import Activation


def BigBird(
    size: str | Size = "base",
    vocabulary_size: int = 50358,
    *,
    block_size: int | None = 64,
    num_random_blocks: int = 3,
    max_sequence_length: int = 4096,
    num_segments: int | None = 2,
    activation: Activation = "gelu_tanh",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    as_transformers: bool = False,
    name: str = "bigbird",
) -> keras.Model:
    """The encoder of BigBird: BERT's, with block-sparse attention: neighboring, global and random blocks.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        block_size: int, or None for full attention.
        num_random_blocks: int >= 0. Number of random blocks that each block attends to.
        max_sequence_length: int. Rows of the position embedding.
        num_segments: int, or None for no "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        as_transformers: bool. Whether attention is that of transformers' `BigBirdModel`; see `BigBirdAttention`.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`} to
        `(B, T, D)`.

    Raises:
        ValueError: unknown size name; a size of blocks out of range.

    Example:

    >>> from keras_transformer.models import Size
    >>> BigBird(Size(2, 16, 2, 32), vocabulary_size=100, block_size=4).output_shape
    (None, None, 16)

    Reference: Zaheer et al., BigBird, arXiv 2007.14062, section 2 (ITC). The random blocks are those of `BigBirdAttention`.
    """
    size = get_size(size, SIZES)
    return bert_encoder(
        size,
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        num_segments=num_segments,
        attention=_attentions(size, block_size, num_random_blocks, attention_dropout, as_transformers),
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )


def _attentions(size, block_size, num_random_blocks, dropout, as_transformers):
    """The attention of each block; every one draws blocks of its own."""
    if block_size is None:
        return make_attention(size, dropout=dropout)
    mechanisms = [
        BigBirdAttention(
            block_size,
            num_random_blocks=num_random_blocks,
            dropout=dropout,
            random_seed=index,
            as_transformers=as_transformers,
        )
        for index in range(size.num_layers)
    ]
    width = size.hidden_dim // size.num_heads
    return [MultiHeadAttention(size.num_heads, width, mechanism=mechanism) for mechanism in mechanisms]
