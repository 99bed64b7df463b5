"""BLOOM."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.utils.types import Activation

# Scao et al., arXiv 2211.05100, table 3.
SIZES = {
    "560M": Size(24, 1024, 16, 4096),
    "1.1B": Size(24, 1536, 16, 6144),
    "1.7B": Size(24, 2048, 16, 8192),
    "3B": Size(30, 2560, 32, 10240),
    "7.1B": Size(30, 4096, 32, 16384),
    "176B": Size(70, 14336, 112, 57344),
}


def BLOOM(
    size: str | Size = "560M",
    vocabulary_size: int = 250880,
    *,
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    residual: str | Residual = "pre",
    name: str = "bloom",
) -> keras.Model:
    """The decoder of BLOOM: pre-norm blocks with ALiBi over normalized token vectors.

    Args:
        size: "560M", "1.1B", "1.7B", "3B", "7.1B", "176B", or a `Size`.
        vocabulary_size: int. V.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of what attention and feed-forward give.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        residual: name in `blocks.RESIDUALS`, or an instance to copy. "normalized_skip" is the option
            `apply_residual_connection_post_layernorm` of its code.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> BLOOM(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Scao et al., BLOOM, arXiv 2211.05100, section 3.2.
    """
    size = get_size(size, SIZES)
    return Decoder(
        size,
        vocabulary_size,
        position=None,
        residual=residual,
        norm=LayerNormalization(epsilon=layer_norm_epsilon),
        embedding_norm=True,
        attention=MultiHeadAttention(
            size.num_heads,
            size.hidden_dim // size.num_heads,
            mechanism=SoftmaxAttention(dropout=attention_dropout),
            position="alibi",
        ),
        activation=activation,
        dropout=dropout,
        embedding_dropout=0.0,
        name=name,
    )
