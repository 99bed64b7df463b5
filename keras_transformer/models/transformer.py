"""The encoder-decoder Transformer of Attention Is All You Need."""

import math

import keras

from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.models.size import Size, get_size
from keras_transformer.models.stack import (
    final_norm,
    make_attention,
    make_cross_attention,
    make_feed_forward,
    padding_input,
    token_input,
)
from keras_transformer.positions import Sinusoidal

# Vaswani et al., table 3.
SIZES = {
    "base": Size(num_layers=6, hidden_dim=512, num_heads=8, intermediate_dim=2048),
    "big": Size(num_layers=6, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
}


def Transformer(
    size="base",
    vocabulary_size=37000,
    *,
    target_vocabulary_size=None,
    tie_embeddings=True,
    residual="post",
    norm="layer_norm",
    attention=None,
    feedforward="dense",
    activation="relu",
    dropout=0.1,
    name="transformer",
):
    """The encoder-decoder Transformer up to its head. `tasks.LanguageModel` puts the head on it.

    Token vectors are multiplied by `√D` and given sinusoidal positions.

    Args:
        size: "base", "big", or a `Size`.
        vocabulary_size: int. Of the source; the default is that of the paper's English-German.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one table (which `tasks.LanguageModel` shares too, by default).
        residual: "post" (the paper), "pre", "sandwich", "sublayer", or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        attention: a name in `attention.MECHANISMS`, or a layer in the manner of `MultiHeadAttention` to copy for every
            attention. What serves self-attention alone leaves cross-attention to softmax.
        feedforward: "dense", "gated", or an instance to copy.
        activation: of a feed-forward given by name.
        dropout: float in [0, 1). Of the embeddings, and of what attention and feed-forward give; the paper's big has 0.3.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; tied tables of different vocabularies.

    Example:

    >>> from keras_transformer.models import Size
    >>> Transformer(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Vaswani et al., arXiv 1706.03762, sections 3.1 to 3.5. The projections of attention have biases, on which the
    paper is silent.
    """
    size = get_size(size, SIZES)
    target_vocabulary_size = target_vocabulary_size or vocabulary_size
    if tie_embeddings and target_vocabulary_size != vocabulary_size:
        raise ValueError(
            f"Tied embeddings need one vocabulary. Received: {vocabulary_size} for the source, "
            f"{target_vocabulary_size} for the target."
        )
    options = {"residual": residual, "norm": norm, "dropout": dropout}
    # Layers
    if tie_embeddings:
        source_embedding = target_embedding = _embedding(vocabulary_size, size, "token_embedding")
    else:
        source_embedding = _embedding(vocabulary_size, size, "source_token_embedding")
        target_embedding = _embedding(target_vocabulary_size, size, "target_token_embedding")
    encoder_blocks = [
        EncoderBlock(
            make_attention(size, attention),
            make_feed_forward(size, feedforward, activation),
            name=f"encoder_block_{index}",
            **options,
        )
        for index in range(size.num_layers)
    ]
    decoder_blocks = [
        DecoderBlock(
            make_attention(size, attention),
            make_feed_forward(size, feedforward, activation),
            cross_attention=make_cross_attention(size, attention),
            name=f"decoder_block_{index}",
            **options,
        )
        for index in range(size.num_layers)
    ]
    # Graph
    source_token_ids, source_padding_mask = token_input("source_token_ids"), padding_input("source_padding_mask")
    target_token_ids, target_padding_mask = token_input("target_token_ids"), padding_input("target_padding_mask")
    x = _embed(source_token_ids, source_embedding, size, dropout, "source")
    for block in encoder_blocks:
        x = block(x, padding_mask=source_padding_mask)
    encoder_output = _end(x, residual, norm, "encoder_final_norm")
    x = _embed(target_token_ids, target_embedding, size, dropout, "target")
    for block in decoder_blocks:
        x = block(x, encoder_output, padding_mask=target_padding_mask, encoder_padding_mask=source_padding_mask)
    inputs = {
        "source_token_ids": source_token_ids,
        "source_padding_mask": source_padding_mask,
        "target_token_ids": target_token_ids,
        "target_padding_mask": target_padding_mask,
    }
    return keras.Model(inputs, _end(x, residual, norm, "decoder_final_norm"), name=name)


def _embedding(vocabulary_size, size, name):
    # Scaled by √D afterwards, so that vectors start with unit variance.
    initializer = keras.initializers.RandomNormal(stddev=size.hidden_dim**-0.5)
    return keras.layers.ReversibleEmbedding(
        vocabulary_size, size.hidden_dim, embeddings_initializer=initializer, name=name
    )


def _embed(token_ids, embedding, size, dropout, side):
    x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name=f"{side}_scale")(embedding(token_ids))
    x = Sinusoidal(name=f"{side}_position")(x)
    return keras.layers.Dropout(dropout, name=f"{side}_dropout")(x)


def _end(x, residual, norm, name):
    last_norm = final_norm(residual, norm, name)
    return x if last_norm is None else last_norm(x)
