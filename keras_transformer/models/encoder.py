"""An encoder-only stack."""

import keras

from keras_transformer.blocks import EncoderBlock
from keras_transformer.models.size import Size, get_size
from keras_transformer.models.stack import (
    final_norm,
    make_attention,
    make_feed_forward,
    make_norm,
    padding_input,
    split_position,
    token_input,
)

# Devlin et al., BERT, arXiv 1810.04805, section 3.
SIZES = {
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
}


def Encoder(
    size,
    vocabulary_size,
    *,
    max_sequence_length=512,
    num_segments=None,
    position="learned",
    residual="pre",
    norm="layer_norm",
    embedding_norm=False,
    attention=None,
    feedforward="dense",
    activation="gelu",
    dropout=0.0,
    name="encoder",
):
    """A stack of encoder blocks over token ids.

    Args:
        size: "base", "large" (the measures of BERT), or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. The table of learned positions.
        num_segments: int, or None. With it the model takes "segment_ids" too, and adds a learned vector for the segment that
            a token belongs to; BERT has 2. `text.Tokenizer.encode_pair` gives them.
        position: "learned", "sinusoidal", "rotary", an instance, or None.
        residual: "pre", "post", "sandwich", "sublayer", or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        embedding_norm: bool. Whether the sum of the embeddings is normalised too, before its dropout, as in BERT.
        attention: a name in `attention.MECHANISMS`; or a layer in the manner of `MultiHeadAttention` to copy for each block,
            which brings its own position.
        feedforward: "dense", "gated", or an instance to copy.
        activation: of a feed-forward given by name.
        dropout: float in [0, 1). Of the embedding, of the attention weights, and of what attention and feed-forward give.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`; with `num_segments` also
        "segment_ids": int32 `(B, T)`.

    Raises:
        ValueError: unknown name of a size or a part; `num_segments` below 1.

    Example:

    >>> from keras_transformer.models import Size
    >>> Encoder(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1, with the options above; segments: Devlin et al., BERT,
    arXiv 1810.04805, section 3.
    """
    size = get_size(size, SIZES)
    if num_segments is not None and num_segments < 1:
        raise ValueError(f"num_segments must be at least 1, or None. Received: {num_segments}")
    embedding_position, attention_position = split_position(position, max_sequence_length)
    # Layers
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    blocks = [
        EncoderBlock(
            make_attention(size, attention, attention_position, dropout),
            make_feed_forward(size, feedforward, activation),
            residual=residual,
            norm=norm,
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
    first_norm = make_norm(norm, "embedding_norm") if embedding_norm else None
    last_norm = final_norm(residual, norm)
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = embedding(inputs["token_ids"])
    if num_segments is not None:
        inputs["segment_ids"] = token_input("segment_ids")
        segments = keras.layers.Embedding(num_segments, size.hidden_dim, name="segment_embedding")
        x = keras.layers.Add(name="token_and_segment")([x, segments(inputs["segment_ids"])])
    x = x if embedding_position is None else embedding_position(x)
    x = x if first_norm is None else first_norm(x)
    x = keras.layers.Dropout(dropout, name="embedding_dropout")(x)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"])
    x = x if last_norm is None else last_norm(x)
    return keras.Model(inputs, x, name=name)
