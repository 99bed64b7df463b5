"""DeBERTa, versions 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import DisentangledAttention
from keras_transformer.blocks import EncoderBlock, NGramInducedEncoding
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention, padding_input, token_input
from keras_transformer.models.text.encoders.encoder import add_segments
from keras_transformer.positions import Learned, RelativeEmbedding
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation

# As published with the weights of versions 3 (up to "large") and 2 ("xlarge", "xxlarge").
SIZES = {
    "xsmall": Size(12, 384, 6, 1536),
    "small": Size(6, 768, 12, 3072),
    "base": Size(12, 768, 12, 3072),
    "large": Size(24, 1024, 16, 4096),
    "xlarge": Size(24, 1536, 24, 6144),
    "xxlarge": Size(48, 1536, 24, 6144),
}
# The sizes of version 2.
_CONVOLVED = ("xlarge", "xxlarge")


def DeBERTa(
    size: str | Size = "base",
    vocabulary_size: int = 128100,
    *,
    relative_embedding: RelativeEmbedding | None = None,
    terms: Sequence[str] = ("c2p", "p2c"),
    share_projections: bool = True,
    convolution: NGramInducedEncoding | None = None,
    max_sequence_length: int | None = None,
    num_segments: int | None = None,
    embedding_dim: int | None = None,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-7,
    name: str = "deberta",
) -> keras.Model:
    """The encoder of DeBERTa, version 2 or 3: post-norm blocks with disentangled attention.

    Without absolute positions texts may have any length; those far beyond the training length share the outermost row of
    the relative embedding.

    Args:
        size: "xsmall", "small", "base", "large" (version 3), "xlarge", "xxlarge" (version 2), or a `Size`.
        vocabulary_size: int. V.
        relative_embedding: `RelativeEmbedding` to copy; all blocks share the copy. None for 256 buckets up to a distance of
            512, with a norm, as published.
        terms: list of "c2p" and "p2c"; an empty list for softmax attention without relative positions. See
            `DisentangledAttention`.
        share_projections: bool. Whether contents and positions share the projections of queries and keys.
        convolution: `NGramInducedEncoding` to copy, beside the first block. None for that of the named size: n-grams of 3
            tokens in version 2, none in version 3.
        max_sequence_length: int, or None for no absolute positions. Rows of a learned position embedding.
        num_segments: int, or None for no "segment_ids".
        embedding_dim: int or None. Width of the embeddings, which a dense layer projects to D. None for D.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, the relative embedding, and the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`; with several segments
        "segment_ids", int32 `(B, T)`, too.

    Raises:
        ValueError: unknown size name or term.

    Example:

    >>> from keras_transformer.models import Size
    >>> DeBERTa(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: He et al., DeBERTa, arXiv 2006.03654, section 3.1, with the changes of the published code of version 2; sizes:
    He et al., DeBERTaV3, arXiv 2111.09543, table 2. Not implemented: the enhanced mask decoder of section 3.2.
    """
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    if convolution is None and size in _CONVOLVED:
        convolution = NGramInducedEncoding(3, activation="gelu", norm=norm, dropout=dropout)
    size = get_size(size, SIZES)
    table = relative_embedding or RelativeEmbedding(512, num_buckets=256, norm=norm)
    table = clone(table, name="relative_embedding")
    blocks = [
        EncoderBlock(
            _mixer(size, table, terms, share_projections, attention_dropout, dropout),
            DenseFeedForward(size.intermediate_dim, activation, name="feedforward"),
            residual="post",
            norm=norm,
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
    beside = clone(convolution, name="ngram_induced_encoding")
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = _token_vectors(inputs, vocabulary_size, size.hidden_dim, embedding_dim, num_segments, max_sequence_length)
    x = clone(norm, name="embedding_norm")(x)
    x = Dropout(dropout, name="embedding_dropout")(x)
    return keras.Model(inputs, _encoded(x, blocks, beside, inputs["padding_mask"]), name=name)


def _mixer(
    size: Size,
    relative_embedding: RelativeEmbedding,
    terms: Sequence[str],
    share_projections: bool,
    dropout: float,
    position_dropout: float,
) -> keras.layers.Layer:
    """The self-attention of a block: disentangled, or softmax attention without terms."""
    if not terms:
        return make_attention(size, dropout=dropout)
    return DisentangledAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        relative_embedding,
        terms=terms,
        share_projections=share_projections,
        dropout=dropout,
        position_dropout=position_dropout,
        name="self_attention",
    )


def _token_vectors(
    inputs: dict[str, keras.KerasTensor],
    vocabulary_size: int,
    width: int,
    embedding_dim: int | None,
    num_segments: int | None,
    max_sequence_length: int | None,
) -> keras.KerasTensor:
    """The sum of the embeddings of tokens, segments and positions, in the width of the blocks."""
    table = keras.layers.ReversibleEmbedding(vocabulary_size, embedding_dim or width, name="token_embedding")
    x = table(inputs["token_ids"])
    x = x if num_segments is None else add_segments(x, inputs, num_segments)
    x = x if max_sequence_length is None else Learned(max_sequence_length, name="position_embedding")(x)
    if embedding_dim is not None:
        x = keras.layers.Dense(width, use_bias=False, name="embedding_projection")(x)
    return x


def _encoded(
    embedded: keras.KerasTensor,
    blocks: Sequence[EncoderBlock],
    beside: keras.layers.Layer | None,
    mask: keras.KerasTensor,
) -> keras.KerasTensor:
    """The output of the blocks; `beside` is a convolution beside the first, or None."""
    x = embedded
    for index, block in enumerate(blocks):
        x = block(x, padding_mask=mask)
        if index == 0 and beside is not None:
            x = beside(embedded, x, padding_mask=mask)
    return x
