"""The translators of Marian, and Pegasus: encoder-decoders with fixed positions."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoder_decoders.transformer import Transformer
from keras_transformer.positions import Sinusoidal
from keras_transformer.utils.types import Activation

# Tiedemann and Thottingal, OPUS-MT, EAMT 2020, section 2: the base Transformer.
SIZES = {"base": Size(num_layers=6, hidden_dim=512, num_heads=8, intermediate_dim=2048)}
# Zhang et al., Pegasus, section 6.
PEGASUS_SIZES = {
    "base": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "large": Size(num_layers=16, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
}


def Marian(
    size: str | Size = "base",
    vocabulary_size: int = 58101,
    *,
    decoder_size: str | Size | None = None,
    target_vocabulary_size: int | None = None,
    tie_embeddings: bool = True,
    scale_embeddings: bool = True,
    residual: str | Residual = "post",
    activation: Activation = "silu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "marian",
) -> keras.Model:
    """The encoder-decoder of Marian: the Transformer, its sines before its cosines.

    `tasks.LanguageModel(Marian(...), head_bias=True, start_id=V - 1, end_id=0)` adds the published head: a text begins
    with the token of padding.

    Args:
        size: "base", or a `Size`.
        vocabulary_size: int. V, of the source; the default is that of OPUS-MT from English to German.
        decoder_size: `Size` of the decoder, as wide as the encoder; None for that of the encoder.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one table.
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
        ValueError: unknown size name; tied tables of different vocabularies.

    Example:

    >>> from keras_transformer.models import Size
    >>> Marian(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Junczys-Dowmunt et al., Marian, arXiv 1804.00344, section 4; activation and positions as in the published
    models of OPUS-MT.
    """
    return Transformer(
        get_size(size, SIZES),
        vocabulary_size,
        decoder_size=decoder_size,
        target_vocabulary_size=target_vocabulary_size,
        tie_embeddings=tie_embeddings,
        scale_embeddings=scale_embeddings,
        position=Sinusoidal(layout="halves"),
        residual=residual,
        norm=LayerNormalization(epsilon=1e-5),
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        hidden_dropout=hidden_dropout,
        name=name,
    )


def Pegasus(
    size: str | Size = "large",
    vocabulary_size: int = 96103,
    *,
    activation: Activation = "relu",
    name: str = "pegasus",
    **options: Any,
) -> keras.Model:
    """The encoder-decoder of Pegasus: that of Marian with pre-norm blocks, and a final norm on each side.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        activation: activation of the feed-forward.
        name: str.
        **options: those of `Marian`.

    Returns:
        `keras.Model`: that of `models.Transformer`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> Pegasus(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Zhang et al., arXiv 1912.08777, section 6; norms and positions as in the published models.
    """
    size = get_size(size, PEGASUS_SIZES)
    return Marian(size, vocabulary_size, residual="pre", activation=activation, name=name, **options)
