"""Parakeet's encoder, FastConformer."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.audio import ConformerConvolution, ConvolutionSubsampling
from keras_transformer.blocks import ConformerBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.positions import TransformerXLRelative
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation

# Rekesh et al., table 6, and the configurations of NVIDIA's checkpoints.
SIZES = {
    "0.6B": Size(num_layers=24, hidden_dim=1024, num_heads=8, intermediate_dim=4096),
    "1.1B": Size(num_layers=42, hidden_dim=1024, num_heads=8, intermediate_dim=4096),
}


def Parakeet(
    size: str | Size = "0.6B",
    *,
    num_mel_bins: int = 80,
    subsampling: ConvolutionSubsampling | None = None,
    kernel_size: int = 9,
    scales_frames: bool = True,
    activation: Activation = "silu",
    use_bias: bool = True,
    use_convolution_bias: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "parakeet",
) -> keras.Model:
    """The encoder of Parakeet, FastConformer: spectrograms to one frame of eight, with relative positions.

    `tasks.SpeechRecognizer` adds the head of Parakeet CTC, and `audio.NormalizedLogMel` makes the spectrograms.

    Args:
        size: "0.6B", "1.1B", or a `Size`.
        num_mel_bins: int >= 1. Bins of the spectrograms M.
        subsampling: `audio.ConvolutionSubsampling` to copy; None for three convolutions of 256 channels. Its `hidden_dim`
            must be that of the size.
        kernel_size: odd int. Frames of the convolutions in the blocks.
        scales_frames: bool. Whether frames are multiplied by `√D` before the blocks.
        activation: activation of the feed-forward and of the convolutions.
        use_bias: bool. Whether projections of attention and feed-forward have biases.
        use_convolution_bias: bool. Whether the convolutions in the blocks have biases.
        dropout: float in [0, 1). Of the frames before the blocks.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layers of the feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"features": float `(B, T, M)`, "padding_mask": bool `(B, T)`, True = a real frame, padded on the
        right} to frames `(B, T / 8, D)`.

    Raises:
        ValueError: unknown size name; heads that do not divide the width; a subsampling of another width.

    Example:

    >>> from keras_transformer.models import Size
    >>> subsampling = ConvolutionSubsampling(16, num_channels=4)
    >>> Parakeet(Size(1, 16, 2, 32), num_mel_bins=24, subsampling=subsampling).output_shape
    (None, None, 16)

    Reference: Rekesh et al., Fast Conformer with Linearly Scalable Attention for Efficient Speech Recognition,
    arXiv 2305.05084; Gulati et al., Conformer, arXiv 2005.08100; relative positions: Dai et al., arXiv 1901.02860,
    section 3.3. The published code can drop out parts of the vectors of distances; here there are none.
    """
    size = get_size(size, SIZES)
    subsampling = ConvolutionSubsampling(size.hidden_dim) if subsampling is None else subsampling
    if subsampling.hidden_dim != size.hidden_dim:
        raise ValueError(
            f"subsampling must have the width of the blocks, {size.hidden_dim}. Received: {subsampling.hidden_dim}"
        )
    inputs = {
        "features": keras.Input((None, num_mel_bins), name="features"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    x, mask = clone(subsampling, name="subsampling")(inputs["features"], padding_mask=inputs["padding_mask"])
    if scales_frames:
        x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name="scale")(x)
    x = Dropout(dropout, name="embedding_dropout")(x)
    blocks = _Blocks(size, kernel_size, activation, use_bias, use_convolution_bias, attention_dropout, hidden_dropout)
    for index in range(size.num_layers):
        x = blocks.block(index)(x, padding_mask=mask)
    return keras.Model(inputs, x, name=name)


class _Blocks(NamedTuple):
    """What the blocks are made of."""

    size: Size
    kernel_size: int
    activation: Activation
    use_bias: bool
    use_convolution_bias: bool
    attention_dropout: float
    hidden_dropout: float

    def block(self, index: int) -> ConformerBlock:
        """Returns a new block."""
        size = self.size
        attention = MultiHeadAttention(
            size.num_heads,
            size.hidden_dim // size.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            position=TransformerXLRelative(size.hidden_dim, name="position"),
            name="self_attention",
        )
        return ConformerBlock(
            attention,
            ConformerConvolution(self.kernel_size, self.activation, self.use_convolution_bias, name="convolution"),
            self._feed_forward("first_feedforward"),
            self._feed_forward("feedforward"),
            norm=LayerNormalization(epsilon=1e-5),
            name=f"encoder_block_{index}",
        )

    def _feed_forward(self, name: str) -> DenseFeedForward:
        width, rate = self.size.intermediate_dim, self.hidden_dropout
        return DenseFeedForward(width, self.activation, dropout=rate, use_bias=self.use_bias, name=name)
