"""BART, and mBART."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoder_decoders.transformer import Transformer
from keras_transformer.positions import Learned
from keras_transformer.utils.types import Activation

# Lewis et al., section 4 and the published configurations. mBART has the size of "large".
SIZES = {
    "base": Size(num_layers=6, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "large": Size(num_layers=12, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
}


def BART(
    size: str | Size = "large",
    vocabulary_size: int = 50265,
    *,
    decoder_size: str | Size | None = None,
    max_sequence_length: int = 1024,
    scale_embeddings: bool = False,
    residual: str | Residual = "post",
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "bart",
) -> keras.Model:
    """The encoder-decoder of BART: post-norm blocks over the normalized sum of token and learned position.

    `tasks.LanguageModel(BART(...), head_bias=True, start_id=2, end_id=2)` adds the published head.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        decoder_size: `Size` of the decoder, with the `hidden_dim` of the encoder; None for the size of the encoder.
        max_sequence_length: int. Number of positions; the table has two more rows.
        scale_embeddings: bool. Whether token vectors are multiplied by `√D`.
        residual: "post", or another scheme of `models.Transformer`.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embeddings, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        name: str.

    Returns:
        `keras.Model`: that of `models.Transformer`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> BART(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Lewis et al., arXiv 1910.13461, section 2.1; embedding norm and the rows of positions as in its published
    code. Its LayerDrop is not implemented.
    """
    return Transformer(
        get_size(size, SIZES),
        vocabulary_size,
        decoder_size=decoder_size,
        scale_embeddings=scale_embeddings,
        position=Learned(max_sequence_length, offset=2),
        embedding_norm=True,
        residual=residual,
        norm=LayerNormalization(epsilon=1e-5),
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        hidden_dropout=hidden_dropout,
        name=name,
    )


def MBart(
    size: str | Size = "large",
    vocabulary_size: int = 250027,
    *,
    scale_embeddings: bool = True,
    name: str = "mbart",
    **options: Any,
) -> keras.Model:
    """The encoder-decoder of mBART: BART with pre-norm blocks, a final norm on each side, and scaled embeddings.

    Args:
        size: "large", "base", or a `Size`.
        vocabulary_size: int. V; the default is that of mbart-large-cc25.
        scale_embeddings: bool. Whether token vectors are multiplied by `√D`.
        name: str.
        **options: those of `BART`.

    Returns:
        `keras.Model`: that of `models.Transformer`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> MBart(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Liu et al., Multilingual Denoising Pre-training, arXiv 2001.08210, section 2.2.
    """
    return BART(size, vocabulary_size, scale_embeddings=scale_embeddings, residual="pre", name=name, **options)
