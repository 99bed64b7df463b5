"""HuBERT."""

from __future__ import annotations

import keras

from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, SpanMasking
from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.audio.speech_encoder import SpeechFrames, speech_attention, speech_blocks, speech_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.utils.types import Activation

# Hsu et al., table 1.
SIZES = {
    "base": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "large": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "xlarge": Size(num_layers=48, hidden_dim=1280, num_heads=16, intermediate_dim=5120),
}


def HuBERT(
    size: str | Size = "base",
    *,
    feature_encoder: FeatureEncoder | None = None,
    normalizes_features: bool = True,
    position: ConvolutionalPosition | None = None,
    span_masking: SpanMasking | None = None,
    residual: str | Residual = "post",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "hubert",
) -> keras.Model:
    """HuBERT, from samples to frames: the architecture of wav2vec 2.0, trained to predict the clusters of hidden frames.

    Args:
        size: "base", "large", "xlarge", or a `Size`. The large ones have `audio.FeatureEncoder(norm="layer", use_bias=True)`
            and `residual="pre"`.
        feature_encoder, position, span_masking, residual, activation: see `Wav2Vec2`.
        normalizes_features: bool. Whether the frames are normalized before their projection.
        dropout, attention_dropout, hidden_dropout, feature_dropout, layer_norm_epsilon, name: see `Wav2Vec2`.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`, True = a real sample, padded on
        the right} to frames `(B, T, D)`; one for 320 samples by default.

    Raises:
        ValueError: as of `Wav2Vec2`.

    Example:

    >>> from keras_transformer.models import Size
    >>> HuBERT(Size(1, 32, 2, 64)).output_shape
    (None, None, 32)

    Reference: Hsu et al., HuBERT, arXiv 2106.07447, section II and table I; deviations as of `Wav2Vec2`.
    """
    size, norm = get_size(size, SIZES), LayerNormalization(epsilon=layer_norm_epsilon)
    feature_norm = norm if normalizes_features else None
    blocks = speech_blocks(
        size,
        lambda: speech_attention(size, attention_dropout),
        residual=residual,
        norm=norm,
        activation=activation,
        dropout=dropout,
        hidden_dropout=hidden_dropout,
    )
    frames = SpeechFrames(size.hidden_dim, feature_encoder, position, span_masking, feature_norm, feature_dropout)
    return speech_encoder(frames, blocks, residual=residual, norm=norm, dropout=dropout, name=name)
