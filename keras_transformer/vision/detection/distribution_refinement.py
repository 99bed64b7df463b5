"""Boxes as distributions over the shifts of their edges, which are refined block by block."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class DistributionRefinement(keras.layers.Layer):
    """Fine-grained distribution refinement: a block adds to the logits of where the edges of the first boxes have moved.

        z = Δ(x) + z_before,   d = Σ_n softmax(z)[n] W(n),   edge = center ∓ (1 / 2 + d / c) side
        quality = Q([top-k of softmax(z); their mean])

    for each of the four edges. Δ has three dense layers; the first two have the width of the queries, and ReLU, the last is
    zero at first. Q, of the four edges together, estimates how good the box is; it is added to the logits of the classes.

    Args:
        num_bins: int. N: see `DistributionBins`. Default 32.
        top_k: int >= 1. Probabilities of an edge that Q sees. Default 4.
        quality_dim: int >= 1. Width of the hidden layers of Q. Default 64.
        num_quality_layers: int >= 1. Dense layers of Q. Default 2.

    Call arguments:
        inputs: float `(B, Q, D)`: x.
        boxes: float `(B, Q, 4)`: the first boxes, center, width and height, as shares of the image.
        values: float `(N + 1,)`: W, of `DistributionBins`.
        curvature: float `(1,)`: c.
        logits: float `(B, Q, 4 (N + 1))`: z of the block before; None for the first.

    Returns:
        tuple of the boxes, `(B, Q, 4)`, z, and the quality, `(B, Q, 1)`.

    Raises:
        ValueError: a number below 1.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.vision import DistributionBins
    >>> values, curvature = DistributionBins(4)(np.zeros(1))
    >>> boxes = np.array([[[0.5, 0.25, 0.5, 0.125]]], "float32")
    >>> layer = DistributionRefinement(num_bins=4)
    >>> np.asarray(layer(np.ones((1, 1, 8), "float32"), boxes, values, curvature)[0]).tolist()
    [[[0.5, 0.25, 0.5, 0.125]]]

    Reference: Peng et al., D-FINE, arXiv 2410.13842, section 4.1; the quality: Li et al., Generalized Focal Loss V2, arXiv
    2011.12885, section 3.3, as in the published code of D-FINE.
    """

    def __init__(
        self,
        num_bins: int = 32,
        top_k: int = 4,
        quality_dim: int = 64,
        num_quality_layers: int = 2,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_bins = positive("num_bins", num_bins)
        self.top_k = positive("top_k", top_k)
        self.quality_dim = positive("quality_dim", quality_dim)
        self.num_quality_layers = positive("num_quality_layers", num_quality_layers)

    def build(self, inputs_shape: Shape, *shapes: Shape) -> None:
        width, values = inputs_shape[-1], self.num_bins + 1
        self._distribution = [self._dense(f"hidden_{index}", width, "relu") for index in range(2)]
        self._distribution.append(self._dense("distribution", 4 * values, kernel_initializer="zeros"))
        last = self.num_quality_layers - 1
        self._quality = [self._dense(f"quality_{index}", self.quality_dim, "relu") for index in range(last)]
        self._quality.append(self._dense(f"quality_{last}", 1, kernel_initializer="zeros"))
        for layers, size in ((self._distribution, width), (self._quality, 4 * (self.top_k + 1))):
            for layer in layers:
                layer.build((None, None, size))
                size = layer.units

    def _dense(self, name, units, activation=None, **options):
        return keras.layers.Dense(units, activation, dtype=self.dtype_policy, name=name, **options)

    def call(
        self, inputs: Tensor, boxes: Tensor, values: Tensor, curvature: Tensor, logits: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        changed = _applied(self._distribution, inputs)
        changed = changed if logits is None else changed + logits
        likely = ops.softmax(ops.reshape(changed, (-1, ops.shape(inputs)[1], 4, self.num_bins + 1)), axis=-1)
        shifts = ops.sum(likely * values, axis=-1) / curvature + 0.5
        center, sides = boxes[..., :2], boxes[..., 2:]
        first, last = center - shifts[..., :2] * sides, center + shifts[..., 2:] * sides
        refined = ops.concatenate([(first + last) / 2, last - first], axis=-1)
        largest, _ = ops.top_k(likely, self.top_k)
        seen = ops.concatenate([largest, ops.mean(largest, axis=-1, keepdims=True)], axis=-1)
        seen = ops.reshape(seen, (-1, ops.shape(inputs)[1], 4 * (self.top_k + 1)))
        return refined, changed, _applied(self._quality, seen)

    def compute_output_spec(
        self, inputs: Tensor, *arguments: object, **options: object
    ) -> tuple[keras.KerasTensor, ...]:
        widths = (4, 4 * (self.num_bins + 1), 1)
        return tuple(keras.KerasTensor((*inputs.shape[:2], width), dtype=self.compute_dtype) for width in widths)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "top_k": self.top_k,
            "quality_dim": self.quality_dim,
            "num_quality_layers": self.num_quality_layers,
        }


def _applied(layers, x):
    for layer in layers:
        x = layer(x)
    return x
