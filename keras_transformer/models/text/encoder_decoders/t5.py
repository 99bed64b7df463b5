"""T5."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.encoder_decoder import Side, encoder_decoder, token_encoder
from keras_transformer.models.building.stack import make_feed_forward
from keras_transformer.positions import RelativeBias
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation, Config


class T5Size(NamedTuple):
    """Size of a T5, with heads of independent width.

    Attributes:
        num_layers: number of blocks of the encoder.
        hidden_dim: width of the tokens D.
        num_heads: attention heads N.
        intermediate_dim: width of the hidden layer of the feed-forward.
        head_dim: width of each head.
        num_decoder_layers: number of blocks of the decoder; None for `num_layers`.

    Example:

    >>> T5Size(num_layers=1, hidden_dim=16, num_heads=3, intermediate_dim=32, head_dim=8).head_dim
    8
    """

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    head_dim: int = 64
    num_decoder_layers: int | None = None


# Raffel et al., section 3.7, and the published configurations of version 1.1, which Flan-T5 shares.
SIZES = {
    "small": T5Size(6, 512, 8, 2048),
    "base": T5Size(12, 768, 12, 3072),
    "large": T5Size(24, 1024, 16, 4096),
    "3b": T5Size(24, 1024, 32, 16384, 128),
    "11b": T5Size(24, 1024, 128, 65536, 128),
    "v1.1-small": T5Size(8, 512, 6, 1024),
    "v1.1-base": T5Size(12, 768, 12, 2048),
    "v1.1-large": T5Size(24, 1024, 16, 2816),
    "v1.1-xl": T5Size(24, 2048, 32, 5120),
    "v1.1-xxl": T5Size(24, 4096, 64, 10240),
}


def T5(
    size: str | T5Size = "small",
    vocabulary_size: int = 32128,
    *,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "relu",
    num_buckets: int = 32,
    max_distance: int = 128,
    dropout: float = 0.1,
    norm_epsilon: float = 1e-6,
    name: str = "t5",
) -> keras.Model:
    """The encoder-decoder of T5: pre-norm blocks with RMS norms and no biases, and unscaled scores.

    Positions are relative biases, which all blocks of a side share. `tasks.LanguageModel` adds the head: for version 1.0,
    `LanguageModel(T5("base"), head_scale=768**-0.5, start_id=0, end_id=1)`; for version 1.1,
    `LanguageModel(T5("v1.1-base", feedforward="gated", activation="gelu_tanh"), tie_embeddings=False, ...)`.

    Args:
        size: "small", "base", "large", "3b", "11b", the same with "v1.1-" ("xl", "xxl"), or a `T5Size`.
        vocabulary_size: int. V.
        feedforward: "dense" (1.0), "gated" (1.1), or an instance to copy.
        activation: activation of a feed-forward given by name: "relu" (1.0), "gelu_tanh" (1.1).
        num_buckets: int. Number of buckets of the relative biases.
        max_distance: int. Distance from which all tokens share a bucket.
        dropout: float in [0, 1). Of the embeddings, the attention weights, the hidden layer of the feed-forward, the
            outputs of attention and feed-forward, and the output of the last norm.
        norm_epsilon: float > 0.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part.

    Example:

    >>> T5(T5Size(1, 16, 3, 32, head_dim=8), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Raffel et al., arXiv 1910.10683, section 2.1; version 1.1: Shazeer, arXiv 2002.05202. Weights have
    the default initialization of Keras, not that of the paper.
    """
    parts = _Parts(size, feedforward, activation, num_buckets, max_distance, dropout, norm_epsilon)
    embedding = parts.embedding(vocabulary_size)
    return encoder_decoder(parts.encoder(embedding), parts.decoder(embedding), name=name)


def T5Encoder(
    size: str | T5Size = "small",
    vocabulary_size: int = 32128,
    *,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "relu",
    num_buckets: int = 32,
    max_distance: int = 128,
    dropout: float = 0.1,
    norm_epsilon: float = 1e-6,
    name: str = "t5_encoder",
) -> keras.Model:
    """The encoder of T5, for embeddings and classification.

    Args:
        size, vocabulary_size, feedforward, activation, num_buckets, max_distance, dropout, norm_epsilon, name: see `T5`.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part.

    Example:

    >>> T5Encoder(T5Size(1, 16, 3, 32, head_dim=8), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: that of `T5`.
    """
    parts = _Parts(size, feedforward, activation, num_buckets, max_distance, dropout, norm_epsilon)
    return token_encoder(parts.encoder(parts.embedding(vocabulary_size)), name=name)


class _Parts:
    """Makes the layers of a T5."""

    def __init__(
        self,
        size: str | T5Size,
        feedforward: str | keras.layers.Layer,
        activation: Activation,
        num_buckets: int,
        max_distance: int,
        dropout: float,
        norm_epsilon: float,
    ) -> None:
        self.size = choice(size, SIZES, argument="size") if isinstance(size, str) else T5Size(*size)
        self._feedforward = feedforward, activation
        self._buckets = num_buckets, max_distance
        self._dropout = dropout
        self._epsilon = norm_epsilon

    def embedding(self, vocabulary_size: int) -> keras.layers.ReversibleEmbedding:
        return keras.layers.ReversibleEmbedding(vocabulary_size, self.size.hidden_dim, name="token_embedding")

    def encoder(self, embedding: keras.layers.Layer) -> Side:
        position = RelativeBias(*self._buckets, name="relative_bias")
        blocks = [
            EncoderBlock(*self._mixer(position), name=f"encoder_block_{index}", **self._options())
            for index in range(self.size.num_layers)
        ]
        return self._side("source", "encoder", embedding, blocks)

    def decoder(self, embedding: keras.layers.Layer) -> Side:
        position = RelativeBias(*self._buckets, bidirectional=False, name="relative_bias")
        blocks = [
            DecoderBlock(
                *self._mixer(position),
                cross_attention=self._attention("cross_attention"),
                name=f"decoder_block_{index}",
                **self._options(),
            )
            for index in range(self.size.num_decoder_layers or self.size.num_layers)
        ]
        return self._side("target", "decoder", embedding, blocks)

    def _side(self, front, name, embedding, blocks):
        dropouts = [Dropout(self._dropout, name=f"{side}_dropout") for side in (front, name)]
        return Side([embedding, dropouts[0]], blocks, [self._norm(f"{name}_final_norm"), dropouts[1]])

    def _mixer(self, position: RelativeBias) -> tuple[MultiHeadAttention, keras.layers.Layer]:
        feedforward = make_feed_forward(
            self.size.intermediate_dim, *self._feedforward, dropout=self._dropout, use_bias=False
        )
        return self._attention("self_attention", position), feedforward

    def _attention(self, name, position=None):
        return MultiHeadAttention(
            self.size.num_heads,
            self.size.head_dim,
            use_bias=False,
            mechanism=SoftmaxAttention(scoring="dot", dropout=self._dropout),
            position=position,
            name=name,
        )

    def _norm(self, name=None):
        return RMSNormalization(epsilon=self._epsilon, name=name)

    def _options(self) -> Config:
        return {"residual": "pre", "norm": self._norm(), "dropout": self._dropout}
