"""WavLM."""

from __future__ import annotations

import keras

from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, SpanMasking
from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.audio.speech_encoder import SpeechFrames, speech_attention, speech_blocks, speech_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.positions import GatedRelativeBias, RelativeBias
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation

# Chen et al., section IV.
SIZES = {
    "base": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "large": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
}


def WavLM(
    size: str | Size = "base",
    *,
    feature_encoder: FeatureEncoder | None = None,
    position: ConvolutionalPosition | None = None,
    relative_bias: RelativeBias | None = None,
    span_masking: SpanMasking | None = None,
    residual: str | Residual = "post",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "wavlm",
) -> keras.Model:
    """WavLM, from samples to frames: the architecture of wav2vec 2.0 with gated relative position biases.

    Args:
        size: "base", "large", or a `Size`. The large one has `audio.FeatureEncoder(norm="layer")` and `residual="pre"`.
        feature_encoder, position: see `Wav2Vec2`.
        relative_bias: `positions.RelativeBias` to copy, which all blocks share; None for one of 320 buckets up to distance
            800. Each block has a gate of its own: see `positions.GatedRelativeBias`.
        span_masking, residual, activation: see `Wav2Vec2`.
        dropout, attention_dropout, hidden_dropout, feature_dropout, layer_norm_epsilon, name: see `Wav2Vec2`.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`, True = a real sample, padded on
        the right} to frames `(B, T, D)`; one for 320 samples by default.

    Raises:
        ValueError: as of `Wav2Vec2`.

    Example:

    >>> from keras_transformer.models import Size
    >>> WavLM(Size(1, 32, 2, 64)).output_shape
    (None, None, 32)

    Reference: Chen et al., WavLM, arXiv 2110.13900, section III.A; deviations as of `Wav2Vec2`.
    """
    relative_bias = clone(relative_bias or RelativeBias(320, 800), name="relative_bias")
    size, norm = get_size(size, SIZES), LayerNormalization(epsilon=layer_norm_epsilon)
    blocks = speech_blocks(
        size,
        lambda: speech_attention(size, attention_dropout, position=GatedRelativeBias(relative_bias, name="position")),
        residual=residual,
        norm=norm,
        activation=activation,
        dropout=dropout,
        hidden_dropout=hidden_dropout,
    )
    frames = SpeechFrames(size.hidden_dim, feature_encoder, position, span_masking, norm, feature_dropout)
    return speech_encoder(frames, blocks, residual=residual, norm=norm, dropout=dropout, name=name)
