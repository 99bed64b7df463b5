"""The Retentive Network."""

from __future__ import annotations

import keras

from keras_transformer.blocks import Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.recurrence import MultiScaleRetention
from keras_transformer.utils.types import Activation

# Those of the authors' code (torchscale), named as the paper names its models. There values are as wide as the feed-forward,
# and a block has 12.1 D² parameters; in the paper both are 2 D wide, and as the feed-forward is plain there, it has 12 D².
SIZES = {
    "1.3B": Size(24, 2048, 8, 3456),
    "2.7B": Size(32, 2560, 10, 4280),
    "6.7B": Size(32, 4096, 16, 6912),
}


def RetNet(
    size: str | Size,
    vocabulary_size: int,
    *,
    value_dim: int | None = None,
    chunk_size: int = 128,
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "rms_norm",
    feedforward: str | keras.layers.Layer = "gated",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    name: str = "retnet",
) -> keras.Model:
    """A decoder whose blocks mix by retention: it trains in parallel, and generates from a state of fixed size.

    Args:
        size: "1.3B", "2.7B", "6.7B", or a `Size`.
        vocabulary_size: int. V.
        value_dim: int, or None for twice the width of a query head, and for what the authors have in a size given by name.
            Width of each value head.
        chunk_size: int >= 1. Tokens per parallel chunk; it affects speed only.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        feedforward: "dense", "gated", or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, and of what retention and feed-forward give.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; heads of odd width.

    Example:

    >>> from keras_transformer.models import Size
    >>> RetNet(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Sun et al., arXiv 2307.08621, section 2. The feed-forward is gated and norms are of the root mean square, as
    in the authors' code (torchscale); the paper has a plain feed-forward and layer norms.
    """
    is_named, size = isinstance(size, str), get_size(size, SIZES)
    if value_dim is None and is_named:
        value_dim = size.intermediate_dim // size.num_heads
    retention = MultiScaleRetention(
        size.num_heads, size.hidden_dim // size.num_heads, value_dim=value_dim, chunk_size=chunk_size
    )
    return Decoder(
        size,
        vocabulary_size,
        position=None,
        residual=residual,
        norm=norm,
        attention=retention,
        feedforward=feedforward,
        activation=activation,
        dropout=dropout,
        name=name,
    )
