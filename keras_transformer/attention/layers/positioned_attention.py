"""Attention of DETR, with positions added to queries and keys."""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.layers.attention_wrapper import AttentionWrapper
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class PositionedAttention(AttentionWrapper):
    """Self-attention with position vectors that are added to what queries and keys are made of, not to values.

        y = attention(query = x + p, key = x + p, value = x)

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`, for self-attention, and
        positions: float `(T, D)`, `(1, T, D)` or `(B, T, D)`: p; None for none.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an unsupported argument: causality, a cache, scores or an `attention_mask`.

    Masks: padding at any position. `attention.attention_maps` returns the scores.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer = PositionedAttention(num_heads=2, key_dim=4)
    >>> x = np.ones((1, 3, 8), "float32")
    >>> tuple(layer(x, x, positions=np.zeros((3, 8), "float32")).shape)
    (1, 3, 8)

    Reference: Carion et al., DETR, arXiv 2005.12872, appendix A.3 and figure 10.
    """

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        build_once(self.attention, query_shape, query_shape)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, mask = inputs.query, inputs.visibility.key_mask
        placed = x if inputs.positions is None else x + ops.cast(inputs.positions, x.dtype)
        return self.attention(placed, x, placed, query_mask=mask, value_mask=mask, training=inputs.training)
