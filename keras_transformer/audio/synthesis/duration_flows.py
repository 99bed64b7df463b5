"""Invertible layers of the stochastic duration predictor."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts
from keras_transformer.audio.synthesis.depth_separable_convolutions import DepthSeparableConvolutions
from keras_transformer.audio.synthesis.spline import inverse_spline
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class ConvolutionFlow(keras.layers.Layer):
    """Inverse of a coupling layer of two channels: the first channel gives the spline of the second.

    `(u, v)` becomes `(u, spline_u^-1(v))`, where the bins of the spline are a projection of convolutions over u.

    Args:
        convolutions: `DepthSeparableConvolutions` to copy, or its config.
        num_bins: int >= 2. Bins of the splines. Default 10.
        bound: float > 0. Values outside of [-bound, bound] stay as they are. Default 5.

    Call arguments:
        inputs: float `(B, T, 2)`.
        condition: float `(B, T, D)`, for the convolutions, whose width it gives.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.

    Returns:
        `(B, T, 2)`, 0 at padding.

    Raises:
        ValueError: fewer than 2 bins; a bound of 0 or less.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> flow = ConvolutionFlow(DepthSeparableConvolutions(1), num_bins=4)
    >>> tuple(flow(np.zeros((1, 5, 2), "float32"), np.zeros((1, 5, 8), "float32")).shape)
    (1, 5, 2)

    Reference: Kim et al., VITS, arXiv 2106.06103, appendix A; Durkan et al., arXiv 1906.04032.
    """

    def __init__(
        self, convolutions: LayerLike, num_bins: int = 10, bound: float = 5.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        check_counts(num_bins=num_bins)
        if num_bins < 2 or bound <= 0:
            raise ValueError(f"num_bins must be at least 2 and bound positive. Received: {num_bins}, {bound}")
        self.convolutions = resolve(convolutions, {}, DepthSeparableConvolutions, argument="convolutions")
        self._convolutions = clone(self.convolutions, name="convolutions", dtype=self.dtype_policy)
        self.num_bins = num_bins
        self.bound = float(bound)

    def build(self, inputs_shape: Shape, condition_shape: Shape) -> None:
        policy, width = {"dtype": self.dtype_policy}, condition_shape[-1]
        self._first_dense = keras.layers.Dense(width, name="first_dense", **policy)
        self._first_dense.build((*inputs_shape[:-1], 1))
        self._convolutions.build(tuple(condition_shape))
        self._bins = keras.layers.Dense(3 * self.num_bins - 1, name="bins", **policy)
        self._bins.build(tuple(condition_shape))

    def call(self, inputs: Tensor, condition: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        kept, changed = inputs[..., :1], inputs[..., 1]
        hidden = self._convolutions(self._first_dense(kept), padding_mask=padding_mask, condition=condition)
        bins = hide_padding(self._bins(hidden), padding_mask)
        scale = 1.0 / math.sqrt(hidden.shape[-1])
        widths, heights = (bins[..., first : first + self.num_bins] * scale for first in (0, self.num_bins))
        changed = inverse_spline(changed, widths, heights, bins[..., 2 * self.num_bins :], self.bound)
        return hide_padding(ops.concatenate([kept, ops.expand_dims(changed, -1)], axis=-1), padding_mask)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "convolutions": serialize(self.convolutions),
            "num_bins": self.num_bins,
            "bound": self.bound,
        }


@serializable
class AffineFlow(keras.layers.Layer):
    """Inverse of an affine map of each channel: `(x - translation) exp(-log_scale)`.

    Call arguments:
        inputs: float `(B, T, C)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.

    Returns:
        `(B, T, C)`, 0 at padding.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> AffineFlow()(np.array([[[3.0, 4.0]]])).numpy().tolist()
    [[[3.0, 4.0]]]

    Reference: Kim et al., VITS, arXiv 2106.06103, appendix A.
    """

    def build(self, inputs_shape: Shape) -> None:
        shape = (inputs_shape[-1],)
        self.translation = self.add_weight(name="translation", shape=shape, initializer="zeros")
        self.log_scale = self.add_weight(name="log_scale", shape=shape, initializer="zeros")

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        translation, log_scale = (ops.cast(each, inputs.dtype) for each in (self.translation, self.log_scale))
        return hide_padding((inputs - translation) * ops.exp(-log_scale), padding_mask)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape
