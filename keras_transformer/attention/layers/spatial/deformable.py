"""Multi-scale deformable attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Config, DType, LayerOptions, Shape, Tensor

_HALVES = ("float16", "bfloat16")


@serializable
class MultiScaleDeformableAttention(keras.layers.Layer):
    """Multi-scale deformable attention: each query reads a few points in and around its box, in feature maps of all sizes.

        y_q = Σ_h W_h Σ_p A[h, q, p] V_h(c_q + s (w_q, h_q) Δ[h, q, p] / P_l)

    for the heads h and the points p, of which P_l are in level l. The weights A, a softmax over the points of all levels,
    and the offsets Δ are linear in the query; c_q and (w_q, h_q) are center and size of its box, s is `offset_scale`.
    V_h(x), the projected map at x, is interpolated between four pixels; beyond the edges it is 0. Apart from the projection
    of the maps, the cost does not depend on their size.

    Args:
        num_heads: int >= 1. It divides D.
        num_points: int, or one for each level: P_l. Default 4.
        num_levels: int. The number of feature maps. Default 3.
        offset_scale: float. s. Default 0.5.
        sampling: "bilinear", or "nearest" for the pixel `⌊size x + 0.5⌋`, whose offsets get no gradient. Default "bilinear".
        use_projections: bool. Whether maps and output are projected; D-FINE does without. Default True.

    Call arguments:
        query: float `(B, Q, D)`.
        memory: list of the feature maps of all levels, float `(B, rows, columns, D)`, whose sizes may be dynamic.
        boxes: float `(B, Q, 4)`: center, width and height, as shares of the image.

    Returns:
        `(B, Q, D)`.

    Raises:
        ValueError: a number below 1; another number of feature maps; `num_heads` does not divide D.

    Masks: none. Export: all three formats; the only operator that is not elementwise, or a product, is a gather of rows.

    Example:

    >>> import numpy as np
    >>> layer = MultiScaleDeformableAttention(num_heads=2, num_levels=2, num_points=(3, 1))
    >>> maps = [np.ones((1, 4, 6, 8), "float32"), np.ones((1, 2, 3, 8), "float32")]
    >>> tuple(layer(np.ones((1, 5, 8), "float32"), maps, np.full((1, 5, 4), 0.5, "float32")).shape)
    (1, 5, 8)

    Reference: Zhu et al., Deformable DETR, arXiv 2010.04159, section 4.1 and equation 3, with boxes instead of points
    (appendix A.4). A level may have points of its own number, and the nearest pixel may be read, as in Lv et al., RT-DETRv2,
    arXiv 2407.17140, section 3.
    """

    def __init__(
        self,
        num_heads: int,
        num_points: int | Sequence[int] = 4,
        num_levels: int = 3,
        offset_scale: float = 0.5,
        sampling: str = "bilinear",
        use_projections: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.num_levels = positive("num_levels", num_levels)
        points = (num_points,) * num_levels if isinstance(num_points, int) else tuple(num_points)
        self.num_points = tuple(positive("num_points", count) for count in points)
        if len(points) != num_levels:
            raise ValueError(f"num_points needs a number for each of {num_levels} levels. Received: {num_points!r}")
        self.offset_scale = offset_scale
        self.sampling = sampling
        self._sample = choice(sampling, _SAMPLINGS, argument="sampling")
        self.use_projections = use_projections
        # The level of each point.
        self._levels = np.repeat(np.arange(num_levels), self.num_points)

    def build(self, query_shape: Shape, memory_shape: Sequence[Shape], boxes_shape: Shape | None = None) -> None:
        width = query_shape[-1]
        if len(memory_shape) != self.num_levels:
            raise ValueError(f"{self.name} takes {self.num_levels} feature maps. Received: {len(memory_shape)}")
        if width % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide the width {width} of {self.name}.")
        count = self.num_heads * sum(self.num_points)
        bias = RadialOffsets(self.num_heads, self.num_points)
        self._offsets = self._dense("sampling_offsets", 2 * count, kernel_initializer="zeros", bias_initializer=bias)
        self._weights = self._dense("attention_weights", count, kernel_initializer="zeros")
        layers, self._value, self._output = [self._offsets, self._weights], None, None
        if self.use_projections:
            self._value, self._output = self._dense("value", width), self._dense("attention_output", width)
            layers += [self._value, self._output]
        for layer in layers:
            layer.build((None, None, width))

    def _dense(self, name, units, **options):
        return keras.layers.Dense(units, dtype=self.dtype_policy, name=name, **options)

    def call(self, query: Tensor, memory: Sequence[Tensor], boxes: Tensor) -> Tensor:
        width, points = query.shape[-1], len(self._levels)
        length, batch = ops.shape(query)[1], ops.shape(query)[0]
        rows, weights = self._places(self._locations(query, boxes), memory)
        scores = ops.softmax(ops.reshape(self._weights(query), (-1, length, self.num_heads, points)), axis=-1)
        weights = ops.cast(weights, scores.dtype) * ops.expand_dims(scores, -1)
        found = ops.take(self._table(memory, width), ops.reshape(rows, (-1,)), axis=0)
        count = points * weights.shape[-1]
        found = ops.reshape(found, (-1, count, width // self.num_heads))
        context = ops.matmul(ops.reshape(weights, (-1, 1, count)), found)
        context = ops.reshape(context, (batch, length, width))
        return context if self._output is None else self._output(context)

    def _table(self, memory, width):
        """The pixels of all maps and heads, `(B S N, H)`."""
        tokens = ops.concatenate([_flattened(each) for each in memory], axis=1)
        tokens = ops.cast(tokens, self.compute_dtype) if self._value is None else self._value(tokens)
        return ops.reshape(tokens, (-1, width // self.num_heads))

    def _locations(self, query, boxes):
        """Places of the points, as shares of the image, `(B, Q, N, P, 2)`, in float32 at least."""
        precise = "float32" if self.compute_dtype in _HALVES else self.compute_dtype
        boxes = ops.cast(ops.expand_dims(ops.expand_dims(boxes, 2), 2), precise)
        shape = (-1, ops.shape(query)[1], self.num_heads, len(self._levels), 2)
        offsets = ops.cast(ops.reshape(self._offsets(query), shape), precise)
        scales = self.offset_scale / np.array(self.num_points)[self._levels, None]
        return boxes[..., :2] + offsets * ops.convert_to_tensor(scales, precise) * boxes[..., 2:]

    def _places(self, locations, memory):
        """Rows of the table, and their weights in the interpolation, both `(B, Q, N, P, 4 or 1)`."""
        sides = [ops.shape(each)[1:3] for each in memory]
        heights, widths = (self._per_point([side[axis] for side in sides]) for axis in (0, 1))
        starts, total = [0], 0
        for height, width in sides:
            total = total + height * width
            starts.append(total)
        columns, rows, weights = self._sample(locations, widths, heights)
        starts, widths = (ops.expand_dims(each, -1) for each in (self._per_point(starts[:-1]), widths))
        pixels = starts + rows * widths + columns
        images = ops.reshape(ops.arange(ops.shape(locations)[0], dtype="int32"), (-1, 1, 1, 1, 1))
        heads = ops.reshape(ops.arange(self.num_heads, dtype="int32"), (1, 1, -1, 1, 1))
        return (images * total + pixels) * self.num_heads + heads, weights

    def _per_point(self, numbers):
        """One number for each level, as int32 `(P,)`."""
        numbers = [ops.cast(number, "int32") for number in numbers]
        return ops.stack([numbers[level] for level in self._levels])

    def compute_output_shape(self, query_shape: Shape, *shapes: Shape) -> Shape:
        return query_shape

    def compute_output_spec(self, query: Tensor, *arguments: object, **options: object) -> keras.KerasTensor:
        return keras.KerasTensor(query.shape, dtype=self.compute_dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_points": list(self.num_points),
            "num_levels": self.num_levels,
            "offset_scale": self.offset_scale,
            "sampling": self.sampling,
            "use_projections": self.use_projections,
        }


@serializable
class RadialOffsets(keras.initializers.Initializer):
    """Initial offsets of the points: the heads look in directions around the center, and each point one step further.

    Args:
        num_heads: int. N.
        num_points: one int for each level.

    Returns:
        `(2 N P,)`: of a point of each head, the step to the right and down.

    Example:

    >>> import numpy as np
    >>> np.asarray(RadialOffsets(4, [1])((8,))).round().astype(int).tolist()
    [1, 0, 0, 1, -1, 0, 0, -1]

    Reference: Zhu et al., Deformable DETR, arXiv 2010.04159, section 5.
    """

    def __init__(self, num_heads: int, num_points: Sequence[int]) -> None:
        self.num_heads = num_heads
        self.num_points = num_points

    def __call__(self, shape: Shape, dtype: DType = None) -> Tensor:
        angles = np.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        directions /= np.abs(directions).max(axis=-1, keepdims=True)
        steps = np.concatenate([np.arange(1, count + 1) for count in self.num_points])
        offsets = directions[:, None] * steps[:, None]
        return ops.convert_to_tensor(offsets.reshape(shape).astype("float32"), dtype or keras.config.floatx())

    def get_config(self) -> Config:
        return {"num_heads": self.num_heads, "num_points": list(self.num_points)}


def _bilinear(locations, widths, heights):
    """Columns and rows of the four pixels around each point, int32, and their weights: `(B, Q, N, P, 4)` each."""
    found = []
    for axis, sides in enumerate((widths, heights)):
        sides = ops.cast(sides, locations.dtype)
        # Pixel i of n covers the places from i / n to (i + 1) / n. Far outside, an integer would overflow.
        places = ops.clip(locations[..., axis] * sides - 0.5, -2.0, sides + 1.0)
        first = ops.floor(places)
        parts = []
        for step in (0.0, 1.0):
            pixel, share = first + step, 1 - ops.abs(places - first - step)
            share = share * ops.cast(ops.logical_and(pixel >= 0, pixel < sides), share.dtype)
            parts.append((ops.cast(ops.clip(pixel, 0.0, sides - 1), "int32"), share))
        found.append(parts)
    corners = [(column, row) for row in found[1] for column in found[0]]
    columns, rows, weights = zip(*((c[0], r[0], c[1] * r[1]) for c, r in corners), strict=True)
    return ops.stack(columns, -1), ops.stack(rows, -1), ops.stack(weights, -1)


def _nearest(locations, widths, heights):
    """Column and row of one pixel for each point, and the weight 1: `(B, Q, N, P, 1)` each."""
    pixels = []
    for axis, sides in enumerate((widths, heights)):
        sides = ops.cast(sides, locations.dtype)
        place = ops.clip(locations[..., axis] * sides + 0.5, 0.0, sides - 1)
        pixels.append(ops.expand_dims(ops.cast(ops.floor(place), "int32"), -1))
    return (*pixels, ops.ones_like(locations[..., :1]))


_SAMPLINGS = {"bilinear": _bilinear, "nearest": _nearest}


def _flattened(grid):
    return ops.reshape(grid, (-1, ops.shape(grid)[1] * ops.shape(grid)[2], grid.shape[-1]))
