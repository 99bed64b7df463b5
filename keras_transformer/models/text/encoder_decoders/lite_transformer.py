"""The Lite Transformer."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import (
    DynamicConvolution,
    LightweightConvolution,
    LongShortRangeAttention,
    MultiHeadAttention,
)
from keras_transformer.blocks import Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoder_decoders.transformer import Transformer
from keras_transformer.utils.serialization import choice

# Wu et al., arXiv 2004.11886, and the configurations of their code, by the multiply-adds of a sentence of 30
# tokens. The hidden layer of the feed-forward has the width of the tokens ("flattened").
SIZES = {
    "100M": Size(num_layers=6, hidden_dim=200, num_heads=8, intermediate_dim=200),
    "300M": Size(num_layers=6, hidden_dim=408, num_heads=8, intermediate_dim=408),
    "500M": Size(num_layers=6, hidden_dim=496, num_heads=8, intermediate_dim=496),
}

_CONVOLUTIONS = {"dynamic": DynamicConvolution, "lightweight": LightweightConvolution}


def LiteTransformer(
    size: str | Size = "500M",
    vocabulary_size: int = 32000,
    *,
    target_vocabulary_size: int | None = None,
    tie_embeddings: bool = True,
    kernel_sizes: Sequence[int] = (3, 7, 15, 31, 31, 31),
    convolution: str = "dynamic",
    gated: bool = True,
    residual: str | Residual = "post",
    norm: str | keras.layers.Layer = "layer_norm",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    name: str = "lite_transformer",
) -> keras.Model:
    """The Lite Transformer without its head: attention on half of the channels, convolution on the other half, and
    feed-forwards of the width of the tokens. `tasks.LanguageModel` adds the head.

    Each block has a `LongShortRangeAttention` of N/2 heads and a convolution of N/2 heads; cross-attention has N.

    Args:
        size: "100M", "300M", "500M", or a `Size` of an even number of heads.
        vocabulary_size: int. Vocabulary size of the source.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one embedding, as `tasks.LanguageModel` does by default.
        kernel_sizes: tuple of ints >= 2: kernel size of the convolution of each block; it repeats over the blocks.
        convolution: "dynamic" (the paper on WMT), "lightweight" (the paper on IWSLT).
        gated: bool. Whether a gated linear unit precedes the convolution.
        residual: a name in `blocks.RESIDUALS`, such as "post" (the paper), or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        dropout: float in [0, 1). Of the embeddings, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the weights of attention and convolution.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; an odd number of heads; tied embeddings of different vocabularies.

    Example:

    >>> from keras_transformer.models import Size
    >>> LiteTransformer(Size(2, 16, 4, 16), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Wu et al., Lite Transformer with Long-Short Range Attention, arXiv 2004.11886, section 4, with the
    options of its code.
    """
    size = get_size(size, SIZES)
    if size.num_heads % 2:
        raise ValueError(f"num_heads must be even, half of them for convolution. Received: {size.num_heads}")
    make_convolution = choice(convolution, _CONVOLUTIONS, argument="convolution")
    heads, key_dim = size.num_heads // 2, size.hidden_dim // size.num_heads
    attention = [
        LongShortRangeAttention(
            MultiHeadAttention(heads, key_dim, dropout=attention_dropout, name="attention"),
            make_convolution(heads, kernel_size, gated=gated, dropout=attention_dropout, name="convolution"),
        )
        for kernel_size in kernel_sizes
    ]
    return Transformer(
        size,
        vocabulary_size,
        target_vocabulary_size=target_vocabulary_size,
        tie_embeddings=tie_embeddings,
        residual=residual,
        norm=norm,
        attention=attention,
        dropout=dropout,
        attention_dropout=attention_dropout,
        name=name,
    )
