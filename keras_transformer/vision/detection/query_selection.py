"""Object queries that are chosen among the pixels of feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.detection.box_refinement import box_offsets

# Anchors closer than this to the edge of the image are not used.
_MARGIN = 0.01
# The logit of 1 in float32.
_OUTSIDE = 1e4


@serializable
class QuerySelection(keras.layers.Layer):
    """Query selection: the pixels of all feature maps that most likely show an object of any class become object queries.

        x = norm(W f),   s = W_s x,   b = σ(σ⁻¹(a) + Δ(x)),   queries = the Q pixels with the largest max_c s[c]

    for the features f of each pixel and its anchor a: a box around its center, whose sides are 0.05 · 2^l of those of the
    image for level l. f is 0 where the anchor is closer than 0.01 to the edge of the image. Δ is that of `BoxRefinement`.

    Args:
        num_classes: int >= 1. C.
        num_queries: int >= 1. Q. Default 300. No more than the pixels of all maps.
        layer_norm_epsilon: float > 0. Default 1e-5.

    Call arguments:
        maps: list of feature maps, float `(B, rows, columns, D)`, the largest first, whose sizes may be dynamic.

    Returns:
        tuple of x, `(B, Q, D)`, without a gradient; b, `(B, Q, 4)`, center, width and height, as shares of the image; and s,
        `(B, Q, C)`: the logits of the classes, which are independent of one another. The most likely first.

    Raises:
        ValueError: a number below 1; fewer pixels than queries, where the sizes are known.

    Export: all three formats. Of pixels whose scores differ by less than the rounding of a runtime, another may be chosen.

    Example:

    >>> import numpy as np
    >>> maps = [np.ones((1, 4, 6, 8), "float32"), np.ones((1, 2, 3, 8), "float32")]
    >>> [tuple(each.shape) for each in QuerySelection(num_classes=3, num_queries=5)(maps)]
    [(1, 5, 8), (1, 5, 4), (1, 5, 3)]

    Reference: Zhao et al., RT-DETR, arXiv 2304.08069, section 4.3, after the two stages of Zhu et al., Deformable DETR,
    arXiv 2010.04159, appendix A.4; anchors and margin as in RT-DETR's published code.
    """

    def __init__(
        self, num_classes: int, num_queries: int = 300, layer_norm_epsilon: float = 1e-5, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive("num_classes", num_classes)
        self.num_queries = positive("num_queries", num_queries)
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, maps_shape: Sequence[Shape]) -> None:
        sizes = [shape[1:3] for shape in maps_shape]
        pixels = None if any(None in size for size in sizes) else sum(rows * columns for rows, columns in sizes)
        if pixels is not None and pixels < self.num_queries:
            raise ValueError(f"{self.name}: {self.num_queries} queries are more than the {pixels} pixels of all maps.")
        width, options = maps_shape[0][-1], {"dtype": self.dtype_policy}
        self._projection = keras.layers.Dense(width, name="projection", **options)
        self._norm = LayerNormalization(epsilon=self.layer_norm_epsilon, name="norm", **options)
        bias = keras.initializers.Constant(prior_logit(self.num_classes))
        self._scores = keras.layers.Dense(self.num_classes, bias_initializer=bias, name="scores", **options)
        self._offsets = box_offsets(width, self.dtype_policy, "glorot_uniform")
        for layer in (self._projection, self._norm, self._scores, *self._offsets):
            layer.build((None, None, width))

    def call(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        width = maps[0].shape[-1]
        tokens = [ops.reshape(each, (-1, ops.shape(each)[1] * ops.shape(each)[2], width)) for each in maps]
        anchors, inside = self._anchors(maps)
        x = ops.cast(ops.concatenate(tokens, axis=1), self.compute_dtype) * inside
        x = self._norm(self._projection(x))
        scores = self._scores(x)
        _, chosen = ops.top_k(ops.max(scores, axis=-1), self.num_queries)
        x, scores, anchors = self._rows(chosen, x, scores, anchors + ops.zeros_like(x[..., :1]))
        offsets = x
        for layer in self._offsets:
            offsets = layer(offsets)
        return ops.stop_gradient(x), ops.sigmoid(offsets + anchors), scores

    def _rows(self, chosen, *tensors):
        """Rows of each image: `(B, Q, ...)` of `(B, S, ...)`."""
        batch, length = ops.shape(tensors[0])[:2]
        starts = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
        rows = ops.reshape(ops.cast(chosen, "int32") + starts, (-1,))
        flat = [ops.reshape(each, (-1, each.shape[-1])) for each in tensors]
        return [ops.reshape(ops.take(each, rows, axis=0), (-1, self.num_queries, each.shape[-1])) for each in flat]

    def _anchors(self, maps):
        """Logits of the boxes around all pixels, `(1, S, 4)`; whether they are inside the margin, 1 or 0, `(1, S, 1)`."""
        logits, inside = [], []
        for level, each in enumerate(maps):
            rows, columns = ops.shape(each)[1:3]
            (down, good_rows), (across, good_columns) = self._centers(rows), self._centers(columns)
            blank = ops.zeros((rows, columns), self.compute_dtype)
            down, across = ops.expand_dims(down, 1) + blank, ops.expand_dims(across, 0) + blank
            side = blank + _logit(0.05 * 2**level)
            good = ops.expand_dims(good_rows, 1) * ops.expand_dims(good_columns, 0)
            good = good if _MARGIN < 0.05 * 2**level < 1 - _MARGIN else good * 0
            logits.append(ops.reshape(ops.stack([across, down, side, side], axis=-1), (1, rows * columns, 4)))
            inside.append(ops.reshape(good, (1, rows * columns, 1)))
        logits, inside = ops.concatenate(logits, axis=1), ops.concatenate(inside, axis=1)
        return ops.where(inside > 0, logits, _OUTSIDE), inside

    def _centers(self, count):
        """Logits of the centers of rows or columns, and 1 or 0: whether they are inside the margin."""
        index = ops.cast(ops.arange(count, dtype="int32"), "float32")
        centers = (index + 0.5) / ops.cast(count, "float32")
        good = ops.logical_and(centers > _MARGIN, centers < 1 - _MARGIN)
        return tuple(ops.cast(each, self.compute_dtype) for each in (ops.log(centers / (1 - centers)), good))

    def compute_output_spec(self, maps: Sequence[Tensor]) -> tuple[keras.KerasTensor, ...]:
        shape = (maps[0].shape[0], self.num_queries)
        widths = (maps[0].shape[-1], 4, self.num_classes)
        return tuple(keras.KerasTensor((*shape, width), dtype=self.compute_dtype) for width in widths)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "num_queries": self.num_queries,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


def prior_logit(num_classes: int) -> float:
    """The logit with which each of C independent classes has the probability 1 / (C + 1)."""
    return -math.log(num_classes)


def _logit(share):
    return math.log(share / (1 - share)) if 0 < share < 1 else _OUTSIDE
