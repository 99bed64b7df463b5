"""Relative position encoding of Transformer-XL."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.distances import rows
from keras_transformer.positions.rotations.rotary_scaling import rotary_rates
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class TransformerXLRelative(AttentionPosition):
    """Relative position encoding of Transformer-XL: scores `((q_i + u) · k_j + (q_i + v) · W_r r_{i-j}) scale`.

    `r_d` is `(sin(d ω_f), cos(d ω_f))` for the frequencies `ω_f = max_wavelength^(-2f / D)`. u and v are biases
    per head for content and distance. There is no tensor of vectors for pairs or distances: sines of a difference are
    products of the sines of queries and keys, so that the second term is one matrix product, `2 T S D` operations per head.

    Args:
        width: even int, or None for `N · H`. Width D of the sinusoids.
        max_wavelength: float > 0. Defaults to 10000.
        scale: float, the scale of the scoring function. None for `1 / √H`.
        kernel_initializer: initializer of W_r, `(D, N, H)`.
        bias_initializer: initializer of u and v, `(N, H)`.

    Returns:
        From `rotate`, the query with u added; a bias, float32 `(B, N, T, S)`.

    Raises:
        ValueError: odd `width`; a mechanism that does not support a bias.

    Example:

    >>> import numpy as np
    >>> position = TransformerXLRelative(width=2, kernel_initializer="ones")
    >>> position.build((1, 3, 1, 4), (1, 3, 1, 4))
    >>> query, positions = np.ones((1, 3, 1, 4), "float32"), np.arange(3)
    >>> np.array(position.bias(query, positions, positions), float)[0, 0, 2].round(3).tolist()  # 4 (sin d + cos d) / √4
    [0.986, 2.764, 2.0]

    Reference: Dai et al., Transformer-XL, arXiv 1901.02860, section 3.3. The paper may share u and v between
    layers; an instance shared by several layers also shares W_r.
    """

    needs = frozenset({"bias", "query"})

    def __init__(
        self,
        width: int | None = None,
        max_wavelength: float = 10000.0,
        scale: float | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if width is not None and (width < 2 or width % 2):
            raise ValueError(f"width must be a positive even integer. Received: {width}")
        self.width = width
        self.max_wavelength = float(max_wavelength)
        self.scale = scale
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, *shapes: Shape) -> None:
        heads = tuple(query_shape[2:])
        width = self.width or heads[0] * heads[1]
        if width % 2:
            raise ValueError(
                f"The width of sinusoids must be even. Received heads of shape {heads}: set an even width."
            )
        self.kernel = self.add_weight(name="kernel", shape=(width, *heads), initializer=self.kernel_initializer)
        self.content_bias, self.position_bias = (
            self.add_weight(name=name, shape=heads, initializer=keras.initializers.get(self.bias_initializer))
            for name in ("content_bias", "position_bias")
        )

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return query + ops.cast(self.content_bias, query.dtype), key

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        # `rotate` has already added u.
        change = ops.cast(self.position_bias - self.content_bias, query.dtype)
        query = ops.transpose((query + change) * ops.cast(scale, query.dtype), (0, 2, 1, 3))
        kernel = ops.transpose(ops.cast(self.kernel, query.dtype), (1, 2, 0))
        sines, cosines = ops.split(
            ops.cast(shared_matmul(query, kernel), "float32"), 2, axis=-1
        )  # (B, N, T, D / 2) each
        # Relative to the first query, so that the angles of near pairs are small and accurate.
        query_positions = rows(query_positions)
        start = query_positions[:, :1]
        sin_i, cos_i = self._sin_and_cos(query_positions - start)
        sin_j, cos_j = self._sin_and_cos(rows(key_positions) - start)
        # sin(i - j) = sin i cos j - cos i sin j; cos(i - j) = cos i cos j + sin i sin j.
        of_query = [sines * sin_i + cosines * cos_i, cosines * sin_i - sines * cos_i]
        of_query = ops.cast(ops.concatenate(of_query, axis=-1), query.dtype)
        of_key = ops.cast(ops.concatenate([cos_j, sin_j], axis=-1), query.dtype)
        # Heads folded into the length: see `shared_matmul`.
        heads, (length, key_length), width = query.shape[1], (ops.shape(x)[2] for x in (query, of_key)), of_key.shape[3]
        of_query = ops.reshape(of_query, (-1, heads * length, width))
        products = ops.matmul(of_query, ops.transpose(of_key[:, 0], (0, 2, 1)))
        return ops.cast(ops.reshape(products, (-1, heads, length, key_length)), "float32")

    def _sin_and_cos(self, positions):
        """Returns sines and cosines, `(1 | B, 1, T, D / 2)` each."""
        rates = rotary_rates(self.kernel.shape[0], self.max_wavelength).astype("float32")
        angles = ops.expand_dims(ops.expand_dims(ops.cast(positions, "float32"), -1) * rates, 1)
        return ops.sin(angles), ops.cos(angles)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "width": self.width,
            "max_wavelength": self.max_wavelength,
            "scale": self.scale,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }
