"""Whisper."""

from __future__ import annotations

import keras
import numpy as np

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.encoder_decoder import Side, encode, encoder_decoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_feed_forward, make_norm
from keras_transformer.positions import Learned
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, DType, Shape, Tensor

# Radford et al., table 1.
SIZES = {
    "tiny": Size(num_layers=4, hidden_dim=384, num_heads=6, intermediate_dim=1536),
    "base": Size(num_layers=6, hidden_dim=512, num_heads=8, intermediate_dim=2048),
    "small": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "medium": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "large": Size(num_layers=32, hidden_dim=1280, num_heads=20, intermediate_dim=5120),
}


def Whisper(
    size: str | Size = "tiny",
    vocabulary_size: int = 51865,
    *,
    decoder_size: str | Size | None = None,
    num_mel_bins: int = 80,
    num_frames: int = 3000,
    max_sequence_length: int = 448,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "whisper",
) -> keras.Model:
    """The encoder-decoder of Whisper: two convolutions over log-mel frames, and pre-norm blocks on both sides.

    `audio.LogMel.whisper()` computes the frames. `tasks.LanguageModel(Whisper(...), start_id=50258, end_id=50257)` adds the
    published head and generates from "features".

    Args:
        size: "tiny", "base", "small", "medium", "large", or a `Size`.
        vocabulary_size: int. V; 51864 for the English-only models, 51866 since large-v3.
        decoder_size: `Size` of the decoder, with the `hidden_dim` of the encoder; None for the size of the encoder.
        num_mel_bins: int. M: 80, or 128 since large-v3.
        num_frames: even int; 3000 frames are 30 seconds. Shorter audio is padded with silence.
        max_sequence_length: int. Number of positions of the decoder.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embeddings, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"features": float `(B, num_frames, M)`, "target_token_ids": int32 `(B, T)`, "target_padding_mask":
        bool `(B, T)`} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown size name; encoder and decoder of different widths; an odd number of frames.

    Example:

    >>> from keras_transformer.models import Size
    >>> Whisper(Size(1, 16, 2, 32), vocabulary_size=100, num_frames=20).output_shape
    (None, None, 16)

    Reference: Radford et al., arXiv 2212.04356, section 2.2; key projections have no bias, as in its published code. The
    sinusoids of the encoder are non-trainable weights.
    """
    size = get_size(size, SIZES)
    decoder_size = size if decoder_size is None else get_size(decoder_size, SIZES)
    if decoder_size.hidden_dim != size.hidden_dim:
        raise ValueError(
            f"hidden_dim must be equal on both sides. Received: {size.hidden_dim} and {decoder_size.hidden_dim}"
        )
    parts = _Parts(activation, dropout, attention_dropout, hidden_dropout)
    return encoder_decoder(
        parts.encoder(size, num_frames),
        parts.decoder(decoder_size, vocabulary_size, max_sequence_length),
        name=name,
        source=keras.Input((num_frames, num_mel_bins), name="features"),
    )


def WhisperEncoder(
    size: str | Size = "tiny",
    *,
    num_mel_bins: int = 80,
    num_frames: int = 3000,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "whisper_encoder",
) -> keras.Model:
    """The encoder of Whisper, for audio classification.

    Args:
        size, num_mel_bins, num_frames, activation, dropout, attention_dropout, hidden_dropout, name: see `Whisper`.

    Returns:
        `keras.Model`: "features", float `(B, num_frames, M)`, to `(B, num_frames / 2, D)`.

    Raises:
        ValueError: unknown size name; an odd number of frames.

    Example:

    >>> from keras_transformer.models import Size
    >>> WhisperEncoder(Size(1, 16, 2, 32), num_frames=20).output_shape
    (None, 10, 16)

    Reference: that of `Whisper`.
    """
    parts = _Parts(activation, dropout, attention_dropout, hidden_dropout)
    features = keras.Input((num_frames, num_mel_bins), name="features")
    return keras.Model(features, encode(parts.encoder(get_size(size, SIZES), num_frames), features, None), name=name)


class _Parts:
    """Makes the layers of a Whisper."""

    def __init__(self, activation: Activation, dropout: float, attention_dropout: float, hidden_dropout: float) -> None:
        self._activation = activation
        self._dropout = dropout
        self._attention_dropout = attention_dropout
        self._hidden_dropout = hidden_dropout
        self._norm = LayerNormalization(epsilon=1e-5)

    def encoder(self, size: Size, num_frames: int) -> Side:
        """The layers of the encoder: two convolutions, positions and blocks; one token per two frames."""
        if num_frames < 2 or num_frames % 2:
            raise ValueError(f"num_frames must be even: a token has two frames. Received: {num_frames}")

        def convolution(name, **options):
            return keras.layers.Conv1D(size.hidden_dim, 3, activation="gelu", name=name, **options)

        front = [
            convolution("convolution_1", padding="same"),
            # "same" would pad on the right only.
            keras.layers.ZeroPadding1D(1, name="padding"),
            convolution("convolution_2", strides=2),
            Learned(num_frames // 2, initializer=Sinusoids(), trainable=False, name="source_position"),
            Dropout(self._dropout, name="source_dropout"),
        ]
        blocks = [
            EncoderBlock(*self._mixer(size), name=f"encoder_block_{index}", **self._options())
            for index in range(size.num_layers)
        ]
        return Side(front, blocks, [make_norm(self._norm, "encoder_final_norm")])

    def decoder(self, size: Size, vocabulary_size: int, max_sequence_length: int) -> Side:
        front = [
            keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding"),
            Learned(max_sequence_length, name="target_position"),
            Dropout(self._dropout, name="target_dropout"),
        ]
        blocks = [
            DecoderBlock(
                *self._mixer(size),
                cross_attention=self._attention(size, "cross_attention"),
                name=f"decoder_block_{index}",
                **self._options(),
            )
            for index in range(size.num_layers)
        ]
        return Side(front, blocks, [make_norm(self._norm, "decoder_final_norm")])

    def _mixer(self, size: Size) -> tuple[MultiHeadAttention, keras.layers.Layer]:
        feedforward = make_feed_forward(size.intermediate_dim, "dense", self._activation, dropout=self._hidden_dropout)
        return self._attention(size, "self_attention"), feedforward

    def _attention(self, size, name):
        width = size.hidden_dim // size.num_heads
        return MultiHeadAttention(size.num_heads, width, dropout=self._attention_dropout, use_key_bias=False, name=name)

    def _options(self) -> Config:
        return {"residual": "pre", "norm": self._norm, "dropout": self._dropout}


@serializable
class Sinusoids(keras.initializers.Initializer):
    """Initializer of sinusoidal positions: sines, then cosines, of wavelengths from 2π to 20000π inclusive.

    Example:

    >>> Sinusoids()((2, 4)).numpy().round(4).tolist()
    [[0.0, 0.0, 1.0, 1.0], [0.8414999842643738, 9.999999747378752e-05, 0.5403000116348267, 1.0]]

    Reference: Radford et al., arXiv 2212.04356, and its published code. Vaswani et al. exclude the longest wavelength.
    """

    def __call__(self, shape: Shape, dtype: DType = None) -> Tensor:
        count, width = shape
        rates = 10000.0 ** -np.linspace(0.0, 1.0, width // 2)
        angles = np.arange(count)[:, None] * rates
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return keras.ops.convert_to_tensor(table, dtype or keras.config.floatx())
