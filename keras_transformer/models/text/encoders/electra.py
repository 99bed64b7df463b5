"""ELECTRA."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.utils.types import Activation

# Clark et al., ELECTRA, arXiv 2003.10555, table 6; large: as BERT's. Of the discriminators.
SIZES = {
    "small": Size(12, 256, 4, 1024),
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
}
_EMBEDDING_DIMS = {"small": 128}


def ELECTRA(
    size: str | Size = "base",
    vocabulary_size: int = 30522,
    *,
    embedding_dim: int | None = None,
    max_sequence_length: int = 512,
    num_segments: int | None = 2,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    name: str = "electra",
) -> keras.Model:
    """The encoder of ELECTRA: BERT's, with embeddings that may have another width than the blocks.

    `tasks.ReplacedTokenDetector` makes it a discriminator; a generator is a smaller one in a `tasks.MaskedLanguageModel`.

    Args:
        size: "small", "base", "large", or a `Size`.
        vocabulary_size: int. V.
        embedding_dim: int or None. Width of the embeddings, which a dense layer projects to D. None: that of the named
            size, or D without a projection.
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
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> ELECTRA(Size(2, 16, 2, 32), vocabulary_size=100, embedding_dim=8).output_shape
    (None, None, 16)

    Reference: Clark et al., ELECTRA, arXiv 2003.10555, appendix A; the projection of the embeddings as in its published
    code.
    """
    if embedding_dim is None and isinstance(size, str):
        embedding_dim = _EMBEDDING_DIMS.get(size)
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
        name=name,
    )
