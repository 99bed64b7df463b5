"""wav2vec 2.0, XLS-R, and a form of them that reads a recording while it is spoken."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.attention import ChunkedAttention, Mechanism
from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, SpanMasking
from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.audio.speech_encoder import SpeechFrames, speech_attention, speech_blocks, speech_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.utils.types import Activation

# Baevski et al., section 4.2; Babu et al., table 2.
SIZES = {
    "base": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "large": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "0.3B": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "1B": Size(num_layers=48, hidden_dim=1280, num_heads=16, intermediate_dim=5120),
    "2B": Size(num_layers=48, hidden_dim=1920, num_heads=16, intermediate_dim=7680),
}


def Wav2Vec2(
    size: str | Size = "base",
    *,
    feature_encoder: FeatureEncoder | None = None,
    position: ConvolutionalPosition | None = None,
    span_masking: SpanMasking | None = None,
    adapter: keras.layers.Layer | None = None,
    block_adapter: keras.layers.Layer | None = None,
    residual: str | Residual = "post",
    mechanism: str | Mechanism = "softmax",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "wav2vec2",
) -> keras.Model:
    """wav2vec 2.0, from samples to frames: convolutions, a convolutional position embedding, and encoder blocks.

    `tasks.SpeechRecognizer` adds a head that is trained with CTC, and `tasks.SequenceClassifier` one for whole recordings.

    Args:
        size: "base", "large", "0.3B", "1B", "2B", or a `Size`. The last three names are those of XLS-R: see `XLSR`.
        feature_encoder: `audio.FeatureEncoder` to copy; None for that of the base model.
        position: `audio.ConvolutionalPosition` to copy; None for one of 128 frames in 16 groups.
        span_masking: `audio.SpanMasking` to copy, which hides frames in training; None for none.
        adapter: `audio.SpeechAdapter` to copy, after the blocks; None for none.
        block_adapter: `audio.BottleneckAdapter` to copy after each block; None for none.
        residual: "post": norms after the residual connections; "pre": norms inside them, the "stable layer norm" of
            the large models.
        mechanism: a name in `attention.MECHANISMS`, or an instance to copy, with an attention dropout of its own. An
            `attention.ChunkedAttention(..., reads_whole_chunks=True)` is for streaming: see `StreamingWav2Vec2`.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedded frames, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        feature_dropout: float in [0, 1). Of the projected frames.
        layer_norm_epsilon: float > 0. Of every norm except those of the feature encoder.
        name: str.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`, True = a real sample, padded on
        the right} to frames `(B, T, D)`; one for 320 samples by default.

    Raises:
        ValueError: unknown size name; groups of the position that do not divide the width.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = Wav2Vec2(Size(1, 32, 2, 64))
    >>> model.output_shape
    (None, None, 32)

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 2. A row of a batch gives what it gives alone, where
    the published code counts padding in the norm of the base model's feature encoder.
    """
    size, norm = get_size(size, SIZES), LayerNormalization(epsilon=layer_norm_epsilon)
    blocks = speech_blocks(
        size,
        lambda: speech_attention(size, attention_dropout, mechanism),
        residual=residual,
        norm=norm,
        activation=activation,
        dropout=dropout,
        hidden_dropout=hidden_dropout,
    )
    frames = SpeechFrames(size.hidden_dim, feature_encoder, position, span_masking, norm, feature_dropout)
    return speech_encoder(
        frames,
        blocks,
        residual=residual,
        norm=norm,
        dropout=dropout,
        block_adapter=block_adapter,
        adapter=adapter,
        name=name,
    )


def XLSR(size: str | Size = "0.3B", *, name: str = "xlsr", **options: Any) -> keras.Model:
    """XLS-R: wav2vec 2.0 with layer norms in the feature encoder, and before attention and feed-forward.

    Args:
        size: "0.3B", "1B", "2B", or a `Size`.
        name: str.
        **options: other arguments of `Wav2Vec2`, which replace those of XLS-R.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`} to frames `(B, T, D)`; see
        `Wav2Vec2`.

    Raises:
        ValueError: as of `Wav2Vec2`.

    Example:

    >>> from keras_transformer.models import Size
    >>> XLSR(Size(1, 32, 2, 64)).output_shape
    (None, None, 32)

    Reference: Babu et al., XLS-R, arXiv 2111.09296, section 2.2 and table 2.
    """
    defaults = {"feature_encoder": FeatureEncoder(norm="layer", use_bias=True), "residual": "pre"}
    return Wav2Vec2(size, name=name, **{**defaults, **options})


def StreamingWav2Vec2(
    size: str | Size = "base",
    *,
    chunk_length: int = 16,
    chunks_before: int = 4,
    attention_dropout: float = 0.0,
    name: str = "streaming_wav2vec2",
    **options: object,
) -> keras.Model:
    """wav2vec 2.0 that sees only the past and a chunk: `Chunkwise` and `tasks.SpeechStream` read it chunk by chunk.

    A frame attends to its own chunk and to `chunks_before` chunks before it. The convolutions over frames are causal, and
    those over samples are normalized per frame. So a recording read in chunks, with a cache of fixed size, gives what it
    gives as a whole, where `fit` trains the model as any other one. With the default sizes, a chunk of 16 frames is 0.32
    seconds, and a frame sees at most 1.6 seconds in each block.

    The weights are those of `XLSR`, in the same order: `set_weights` takes those of a model with the same sizes, such as a
    published one, to be trained further.

    Args:
        size: see `Wav2Vec2`.
        chunk_length: int >= 1. Frames of a chunk, which is the delay of the last one's text.
        chunks_before: int >= 0. Attended chunks before a frame's own.
        attention_dropout: float in [0, 1). Of the attention weights.
        name: str.
        **options: other arguments of `Wav2Vec2`, which replace those of XLS-R with causal convolutions over frames.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`} to frames `(B, T, D)`; see
        `Wav2Vec2`.

    Raises:
        ValueError: as of `Wav2Vec2`; numbers out of their range.

    Example:

    >>> from keras_transformer.models import Size
    >>> StreamingWav2Vec2(Size(1, 32, 2, 64), chunk_length=4, chunks_before=1).output_shape
    (None, None, 32)

    Reference: `XLSR`; chunks of attention: Chen et al., arXiv 2010.11395, section 3. The papers of wav2vec 2.0 have no such
    model.
    """
    mechanism = ChunkedAttention(chunk_length, chunks_before, dropout=attention_dropout, reads_whole_chunks=True)
    defaults = {"position": ConvolutionalPosition(padding="causal"), "mechanism": mechanism}
    return XLSR(size, name=name, **{**defaults, **options})
