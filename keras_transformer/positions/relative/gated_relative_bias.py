"""Gated relative position biases of WavLM."""

from __future__ import annotations

from typing import Any, Unpack

from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.relative_bias import RelativeBias
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize_shared
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

# Outputs of the linear map of a gate, which are added up.
_PARTS = 4


@serializable
class GatedRelativeBias(AttentionPosition):
    """Gated relative position bias of WavLM: `bias_nij = g_ni b[bucket(j - i), n]`, with a gate of the token of query i.

    `g_ni = σ(u_ni) (σ(r_ni) s_n - 1) + 2`, where u and r are linear maps of the part of the token, the input of attention,
    with the channels of head n; s_n is learned. The maps are the same for all heads.

    Args:
        relative_bias: `RelativeBias` to gate; None for one of 320 buckets up to distance 800. Layers with the same instance
            share its biases, as the blocks of `models.WavLM` do; gates are of one layer.

    Returns:
        A bias, float32 `(B, N, T, S)`.

    Raises:
        ValueError: tokens whose width is not that of all queries together; an attention other than `MultiHeadAttention`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> layer = MultiHeadAttention(2, 4, position=GatedRelativeBias())
    >>> tuple(layer(np.ones((1, 3, 8)), np.ones((1, 3, 8))).shape)
    (1, 3, 8)

    Reference: Chen et al., WavLM, arXiv 2110.13900, section III.A; the gate as in the published code, which reads the input
    of attention instead of the queries, and adds up four linear maps for each of u and r.
    """

    needs = frozenset({"bias"})

    def __init__(self, relative_bias: RelativeBias | Config | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        given = RelativeBias(320, 800, name="relative_bias") if relative_bias is None else relative_bias
        self.relative_bias = resolve(given, {}, RelativeBias, argument="relative_bias")

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        build_once(self.relative_bias, query_shape, *shapes)
        heads, width = query_shape[2:]
        self.gate_kernel = self.add_weight(
            name="gate_kernel", shape=(width, 2 * _PARTS), initializer="glorot_uniform", autocast=False
        )
        self.gate_bias = self.add_weight(name="gate_bias", shape=(2 * _PARTS,), initializer="zeros", autocast=False)
        self.gate_scale = self.add_weight(name="gate_scale", shape=(heads,), initializer="ones", autocast=False)

    def given(self, tokens: Tensor) -> Any:
        return _Given(self, tokens)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        raise ValueError(f"{self.name} reads the tokens of MultiHeadAttention; no other attention supports it.")

    def gates(self, tokens: Tensor) -> Tensor:
        """Returns the gates, float32 `(B, N, T, 1)`, of tokens `(B, T, D)`."""
        heads, width = self.gate_scale.shape[0], self.gate_kernel.shape[0]
        if tokens.shape[-1] != heads * width:
            raise ValueError(
                f"{self.name} needs tokens as wide as {heads} queries of {width}. Their width: {tokens.shape[-1]}"
            )
        x = ops.reshape(ops.cast(tokens, "float32"), (-1, ops.shape(tokens)[1], heads, width))
        x = ops.matmul(x, self.gate_kernel) + self.gate_bias
        first, second = (ops.sum(part, axis=-1, keepdims=True) for part in ops.split(x, 2, axis=-1))
        scale = ops.reshape(self.gate_scale, (1, 1, heads, 1))
        gates = ops.sigmoid(first) * (ops.sigmoid(second) * scale - 1.0) + 2.0
        return ops.transpose(gates, (0, 2, 1, 3))

    def get_config(self) -> Config:
        return {**super().get_config(), "relative_bias": serialize_shared(self.relative_bias)}


class _Given:
    """A `GatedRelativeBias` with the tokens of one call."""

    needs = GatedRelativeBias.needs
    is_shared = False

    def __init__(self, position: GatedRelativeBias, tokens: Tensor) -> None:
        self.name = position.name
        self.rotate = position.rotate
        self._position = position
        self._tokens = tokens

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        bias = self._position.relative_bias.bias(query, query_positions, key_positions)
        return self._position.gates(self._tokens) * bias

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> None:
        return None
