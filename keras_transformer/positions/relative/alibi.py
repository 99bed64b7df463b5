"""Attention with linear biases (ALiBi)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class ALiBi(AttentionPosition):
    """Attention with linear biases: `bias_nij = -m_n |i - j|`, with one slope per head.

    With N a power of 2, `m_n = 2^(-8n / N)` for n = 1 .. N. Otherwise, with P the largest power of 2 below N, the first P
    heads have the slopes for P heads, and the others every second slope for 2P heads, starting with the first. There are no
    weights, and no maximum position.

    Args:
        symmetric: bool. Whether the bias is the same on both sides, as encoders need; causal attention does not depend on
            it. False is the signed distance of BLOOM, `m_n (j - i)`, which favors later keys.
        scale: float. Factor of the slopes: `1 / √H` in Falcon, which scales scores after adding the biases. Default 1.

    Returns:
        A bias, float32 `(1 | B, N, T, S)`.

    Raises:
        ValueError: a mechanism that does not support a bias.

    Example:

    >>> import numpy as np
    >>> query = np.zeros((1, 1, 2, 4))  # Two heads: slopes of 1/16 and 1/256.
    >>> np.array(ALiBi().bias(query, np.array([2]), np.array([0, 1, 3]))).tolist()
    [[[[-0.125, -0.0625, -0.0625]], [[-0.0078125, -0.00390625, -0.00390625]]]]

    Reference: Press et al., Train Short, Test Long, arXiv 2108.12409, section 3. The paper is causal; the symmetric
    form for encoders, and slopes for any number of heads, are from the authors' code.
    """

    needs = frozenset({"bias"})

    def __init__(self, symmetric: bool = True, scale: float = 1.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.symmetric = symmetric
        self.scale = float(scale)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = ops.cast(distances(query_positions, key_positions), "float32")
        distance = -ops.abs(distance) if self.symmetric else distance
        slopes = (self.scale * alibi_slopes(query.shape[2])).astype("float32").reshape(1, -1, 1, 1)
        return ops.expand_dims(distance, 1) * slopes

    def get_config(self) -> Config:
        return {**super().get_config(), "symmetric": self.symmetric, "scale": self.scale}


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns the ALiBi slope of each head, float64 `(num_heads,)`.

    Example:

    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    more = 2.0 ** (-4 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([slopes, more[: num_heads - power]])
