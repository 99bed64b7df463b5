"""ALBERT."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.utils.types import Activation

# Lan et al., ALBERT, arXiv 1909.11942, table 1; the heads as in its published code.
SIZES = {
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
    "xlarge": Size(24, 2048, 16, 8192),
    "xxlarge": Size(12, 4096, 64, 16384),
}


def ALBERT(
    size: str | Size = "base",
    vocabulary_size: int = 30000,
    *,
    embedding_dim: int = 128,
    num_block_groups: int = 1,
    blocks_per_group: int = 1,
    max_sequence_length: int = 512,
    num_segments: int | None = 2,
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-12,
    name: str = "albert",
) -> keras.Model:
    """The encoder of ALBERT: BERT's, with one set of weights for all blocks, and factorized embeddings.

    Args:
        size: "base", "large", "xlarge", "xxlarge", or a `Size`.
        vocabulary_size: int. V.
        embedding_dim: int. Width of the embeddings, which a dense layer projects to D.
        num_block_groups: int. Number of groups of blocks with weights of their own; consecutive layers share them.
        blocks_per_group: int that divides the number of layers. Number of different blocks in a group.
        max_sequence_length: int. Rows of the position embedding.
        num_segments: int, or None for no "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`} to
        `(B, T, D)`.

    Raises:
        ValueError: unknown size name; more groups than layers; `blocks_per_group` that does not divide them.

    Example:

    >>> from keras_transformer.models import Size
    >>> ALBERT(Size(2, 16, 2, 32), vocabulary_size=100, embedding_dim=8).output_shape
    (None, None, 16)

    Reference: Lan et al., ALBERT, arXiv 1909.11942, section 3.1; the defaults are those of its version 2.
    """
    return bert_encoder(
        get_size(size, SIZES),
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        num_segments=num_segments,
        embedding_dim=embedding_dim,
        attention_dropout=attention_dropout,
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        num_block_groups=num_block_groups,
        blocks_per_group=blocks_per_group,
        name=name,
    )
