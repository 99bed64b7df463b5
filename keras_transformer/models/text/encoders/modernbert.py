"""ModernBERT."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention
from keras_transformer.blocks import Residual
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import Encoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# Warner et al., ModernBERT, arXiv 2412.13663, table 4.
SIZES = {
    "base": Size(22, 768, 12, 1152),
    "large": Size(28, 1024, 16, 2624),
}
# Every third block, from the first on, attends to all tokens: section 2.1.2.
_PATTERN = (False, True, True)


def ModernBERT(
    size: str | Size = "base",
    vocabulary_size: int = 50368,
    *,
    local_window: int = 65,
    is_local: Sequence[bool] = _PATTERN,
    global_max_wavelength: float = 160000.0,
    local_max_wavelength: float = 10000.0,
    activation: Activation = "gelu",
    attention_bias: bool = False,
    feedforward_bias: bool = False,
    norm_bias: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    feedforward_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "modernbert",
) -> keras.Model:
    """The encoder of ModernBERT: pre-norm blocks of rotary attention, most of them local, and gated feed-forwards.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        local_window: int >= 1. A local block attends to tokens at a distance below this, on both sides.
        is_local: tuple of bools: which blocks are local, in turn, from the first again after the last.
        global_max_wavelength, local_max_wavelength: float > 0. Of the rotary positions of either kind of block.
        activation: of the gate of the feed-forward.
        attention_bias, feedforward_bias, norm_bias: bool. Whether these have biases.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        feedforward_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`. Any length; it was
        trained on up to 8,192 tokens.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> ModernBERT(Size(3, 16, 2, 24), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Warner et al., ModernBERT, arXiv 2412.13663, section 2.1. The attention of the first block has no norm, as the
    embedding has one; the windows and wavelengths are those of the published code.
    """
    size = get_size(size, SIZES)
    seen: dict[bool, tuple[int | None, float]] = {
        True: (local_window, local_max_wavelength),
        False: (None, global_max_wavelength),
    }
    return Encoder(
        size,
        vocabulary_size,
        position=None,
        residual="pre",
        first_residual=Residual(),
        norm=LayerNormalization(epsilon=layer_norm_epsilon, center=norm_bias),
        embedding_norm=True,
        attention=[_attention(size, *seen[local], attention_bias, attention_dropout) for local in is_local],
        feedforward=GatedFeedForward(
            size.intermediate_dim, activation=activation, dropout=feedforward_dropout, use_bias=feedforward_bias
        ),
        dropout=dropout,
        name=name,
    )


def _attention(
    size: Size, window: int | None, max_wavelength: float, use_bias: bool, dropout: float
) -> MultiHeadAttention:
    """Attention to tokens at a distance below a window, or to all."""
    mechanism = SoftmaxAttention(dropout=dropout) if window is None else LocalAttention(window, dropout=dropout)
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        use_bias=use_bias,
        mechanism=mechanism,
        position=Rotary(max_wavelength, layout="halves"),
    )
