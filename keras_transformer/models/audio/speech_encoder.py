"""The graph that encoders of speech share: samples, frames, positions, blocks."""

from __future__ import annotations

import keras

from keras_transformer.attention import ChunkedAttention, Mechanism, MultiHeadAttention
from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, FrameMask, SpanMasking
from keras_transformer.blocks import EncoderBlock, Residual, StreamingEncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import final_norm, make_feed_forward
from keras_transformer.positions import GatedRelativeBias, RelativeBias
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation


def sample_inputs() -> dict[str, keras.KerasTensor]:
    """Symbolic recordings: "samples", float `(B, samples)`, and "padding_mask", boolean `(B, samples)`."""
    return {
        "samples": keras.Input((None,), name="samples"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }


def speech_encoder(
    size: Size,
    *,
    feature_encoder: FeatureEncoder | None = None,
    normalizes_features: bool = True,
    position: ConvolutionalPosition | None = None,
    span_masking: SpanMasking | None = None,
    adapter: keras.layers.Layer | None = None,
    block_adapter: keras.layers.Layer | None = None,
    residual: str | Residual = "post",
    mechanism: str | Mechanism = "softmax",
    relative_bias: RelativeBias | None = None,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str,
) -> keras.Model:
    """The graph of an encoder of speech.

    Args:
        size: `Size`.
        feature_encoder, position: layers to copy; None for those of the base model of wav2vec 2.0.
        span_masking, adapter, block_adapter: layers to copy, or None.
        normalizes_features: bool. Whether the frames are normalized before their projection.
        residual: "post" or "pre", or a `Residual` to copy.
        mechanism: a name in `attention.MECHANISMS`, or an instance to copy, with an attention dropout of its own.
        relative_bias: `RelativeBias` that all blocks share, each with a gate of its own; None for none.
        activation: of the feed-forward.
        dropout, attention_dropout, hidden_dropout, feature_dropout: floats: of the outputs of the layers and of the input of
            the first block, of the attention weights, of the hidden layer of the feed-forward, of the projected frames.
        layer_norm_epsilon: float. Of every norm except those of the feature encoder.
        name: str.

    Returns:
        `keras.Model`: {"samples", "padding_mask"} to `(B, T, D)`.
    """
    inputs = sample_inputs()
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    encode = clone(feature_encoder or FeatureEncoder(), name="feature_encoder")
    x = encode(inputs["samples"], padding_mask=inputs["padding_mask"])
    mask = FrameMask(encode.kernel_sizes, encode.strides, name="frame_mask")(inputs["padding_mask"])
    x = clone(norm, name="feature_norm")(x) if normalizes_features else x
    x = keras.layers.Dense(size.hidden_dim, name="feature_projection")(x)
    x = Dropout(feature_dropout, name="feature_dropout")(x)
    if span_masking is not None:
        x, _ = clone(span_masking, name="span_masking")(x, padding_mask=mask)
    x = clone(position or ConvolutionalPosition(), name="position")(x, padding_mask=mask)
    last_norm = final_norm(residual, norm)
    relative_bias = clone(relative_bias, name="relative_bias")
    streams = isinstance(mechanism, ChunkedAttention) and mechanism.reads_whole_chunks
    block_type = StreamingEncoderBlock if streams else EncoderBlock
    x = clone(norm, name="embedding_norm")(x) if last_norm is None else x
    x = Dropout(dropout, name="embedding_dropout")(x)
    for index in range(size.num_layers):
        block = block_type(
            MultiHeadAttention(
                size.num_heads,
                size.hidden_dim // size.num_heads,
                dropout=attention_dropout,
                mechanism=mechanism if isinstance(mechanism, str) else clone(mechanism),
                position=None if relative_bias is None else GatedRelativeBias(relative_bias, name="position"),
                name="self_attention",
            ),
            make_feed_forward(size.intermediate_dim, "dense", activation, dropout=hidden_dropout),
            residual=residual,
            norm=norm,
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        x = block(x, padding_mask=mask)
        x = x if block_adapter is None else clone(block_adapter, name=f"block_adapter_{index}")(x)
    x = x if last_norm is None else last_norm(x)
    x = x if adapter is None else clone(adapter, name="adapter")(x, padding_mask=mask)[0]
    return keras.Model(inputs, x, name=name)
