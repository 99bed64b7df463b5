"""Layers with the state of fake quantization: of a weight, and of the inputs of a product."""

from __future__ import annotations

import math
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.rounding import best_scales, blocks_of, half, in_blocks
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.training.compression.fake_quantization import (
    LEAST,
    codes_of,
    fake_quantized,
    int8_rounded,
    learned_step,
    searched_scale,
    stored_minimum,
    straight_through,
)
from keras_transformer.utils.types import LayerOptions, Shape, Tensor


class WeightQuantizer(keras.layers.Layer):
    """Fake quantization of a weight: real numbers in, the numbers of a scheme out.

    With `step="learned"` the scales are trained: see `learned_step`; the scale of their gradient is `1 / sqrt(N Q)`, for N
    numbers that share a scale and the largest integer Q. With "straight_through" they are computed from the weight.

    Args:
        shape: tuple of ints: that of the weight.
        contracted: int: the number of its leading axes that are inputs; 0 for a table, whose rows are embeddings.
        scheme: `WeightScheme`.
        step: "learned" or "straight_through".

    Reference: Esser et al., arXiv 1902.08153, section 2.2. A step for each row or block instead of one for each layer. The
    minimum of a block is learned too, as in LSQ+ (Bhalgat et al., arXiv 2004.09576, equation 2).
    """

    def __init__(self, shape: Shape, contracted: int, scheme: WeightScheme, step: str, **kwargs: object) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.scheme, self.step_kind, self.is_table = scheme, step, contracted == 0
        width = math.prod(shape[1:] if self.is_table else shape[:contracted])
        block = scheme.block_size or width
        # The layout of the weight stays as it is: no step of training transposes it.
        self.axis = 2 if self.is_table else 1
        rows = shape[0] if self.is_table else math.prod(shape[contracted:])
        blocks = width // block
        self._view = (rows, blocks, block) if self.is_table else (blocks, block, rows)
        self._shape = tuple(shape)
        self._gradient_scale = 1 / math.sqrt(block * scheme.highest)
        self.step: keras.Variable = None
        self.initial_step: keras.Variable = None
        self.minimum: keras.Variable = None

    def build(self, input_shape: Shape | None = None) -> None:
        if self.step_kind != "straight_through":
            shape = tuple(1 if axis == self.axis else size for axis, size in enumerate(self._view))
            options: dict[str, object] = {"shape": shape, "dtype": "float32", "autocast": False}
            self.step = self.add_weight(name="relative_step", initializer="ones", **options)
            self.initial_step = self.add_weight(name="initial_step", initializer="ones", trainable=False, **options)
            if self.scheme.has_minimum:
                self.minimum = self.add_weight(name="minimum", initializer="zeros", **options)

    def initialize(self, rows: np.ndarray, initial_step: str, known: Blocks | None = None) -> None:
        """Sets learned scales from the rows `(N, K)` of the weight.

        Args:
            rows: float32.
            initial_step: "least_squares" for those that `quantize_weights` would choose, "mean" for `2 mean(|w|) / sqrt(Q)`.
            known: `Blocks` that the rows are the values of: their scales are then taken instead.
        """
        if self.step is None:
            return
        if known is not None:
            self._set(known.scale.astype("float32"), None if known.minimum is None else known.minimum.astype("float32"))
            return
        blocked = in_blocks(rows, self.scheme)
        if initial_step == "least_squares":
            scale, minimum = best_scales(blocked, self.scheme, np.ones((1, *blocked.shape[1:]), "float32"))
        else:
            minimum = half(blocked.min(axis=-1)) if self.scheme.has_minimum else None
            distance = blocked if minimum is None else blocked - minimum[..., None]
            scale = 2 * np.abs(distance).mean(axis=-1) / math.sqrt(self.scheme.highest)
        self._set(scale, minimum)

    def _set(self, scale, minimum):
        self.initial_step.assign(self._to_view(np.maximum(scale, LEAST)))
        if self.minimum is not None:
            self.minimum.assign(self._to_view(minimum))

    def _to_view(self, scale):
        """Scales `(N, blocks)` as they stand beside the numbers."""
        return scale[..., None] if self.is_table else scale.T[:, None, :]

    def _to_rows(self, x):
        """Numbers `(N, blocks, size)` of those in the layout of the weight."""
        array = ops.convert_to_numpy(x)
        return array if self.is_table else array.transpose(2, 0, 1)

    def scales(self, x: Tensor, indices: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The scales and minima, with the precision of files, of a weight in blocks; if learned, of some rows or all."""
        if self.step is None:
            return searched_scale(x, self.scheme, self.axis)
        parts = (self.step, self.initial_step, self.minimum)
        relative, initial, minimum = (picked(variable, indices) for variable in parts)
        step = learned_step(relative, initial, self.scheme, self._gradient_scale)
        return step, None if minimum is None else straight_through(stored_minimum, minimum, self._gradient_scale)

    def rounded(self, weight: Tensor) -> Tensor:
        """The numbers of the scheme that are nearest to those of a weight, float32."""
        return ops.reshape(self._rounded(self._blocked(weight), self.axis), self._shape)

    def rounded_rows(self, table: Tensor, indices: Tensor) -> Tensor:
        """As `rounded`, of some rows of a table, whose scales are learned: `(*indices.shape, K)`."""
        x = ops.take(self._blocked(table), indices, axis=0)
        rows = self._quantize(x, self.scales(x, indices), axis=-1, indices=indices)
        return ops.reshape(rows, (*ops.shape(rows)[:-2], math.prod(self._view[1:])))

    def _blocked(self, weight):
        with keras_private.autocast_scope(None):
            return ops.reshape(ops.cast(ops.convert_to_tensor(weight), "float32"), self._view)

    def _rounded(self, x, axis):
        if self.step is not None:
            return self._quantize(x, self.scales(x), axis)

        def nearest(x):
            return self._nearest(x, *searched_scale(x, self.scheme, axis))

        return straight_through(nearest, x)

    def _quantize(self, x, scales, axis, indices=None):
        """The numbers of all rows, or of some, with gradients for them and their scales."""
        step, minimum = scales
        limits = self.scheme.lowest, self.scheme.highest
        if minimum is None:
            return fake_quantized(x, step, *limits, axis)
        return fake_quantized(x - minimum, step, *limits, axis) + minimum

    def _nearest(self, x, scale, minimum):
        numbers = codes_of(x, scale, minimum, self.scheme) * scale
        return numbers if minimum is None else numbers + minimum

    def blocks(self, weight: Tensor) -> Blocks:
        """The integers and scales of a weight."""
        x = self._blocked(weight)
        scale, minimum = self.scales(x)
        q = self._to_rows(self._codes(x, scale, minimum))
        minima = None if minimum is None else self._to_rows(minimum)[..., 0]
        return blocks_of(q, self._to_rows(scale)[..., 0], minima, self.scheme)

    def _codes(self, x, scale, minimum):
        return codes_of(x, scale, minimum, self.scheme)


class InputQuantizer(keras.layers.Layer):
    """Fake quantization of the inputs of a product in 8 bits: `scale * q`, with q from -127 to 127.

    The scale is `max |x| / 127`: of each token ("per_token"), or of all, a moving average over the batches of training
    ("static"; then q is -128 at least).

    Args:
        num_axes: int: the number of last axes that are the vector of a token.
        activation_range: "per_token" or "static".
        momentum: float. Of the moving average. Default 0.95.
    """

    def __init__(
        self, num_axes: int, activation_range: str, momentum: float = 0.95, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.num_axes, self.activation_range, self.momentum = num_axes, activation_range, momentum
        self.supports_masking = True
        self.largest: keras.Variable = None

    def build(self, input_shape: Shape | None = None) -> None:
        if self.activation_range == "static":
            options: dict[str, object] = {"dtype": "float32", "autocast": False, "trainable": False}
            self.largest = self.add_weight(name="largest", shape=(), initializer="zeros", aggregation="mean", **options)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(inputs, "float32")
        magnitude = ops.stop_gradient(ops.abs(x))
        if self.largest is None:
            axes = tuple(range(-self.num_axes, 0))
            largest = ops.max(magnitude, axis=axes, keepdims=True)
        else:
            largest = self._moving_average(ops.max(magnitude), training)
        # Tokens of zeros have any scale. Integers of static ranges have all codes, as the operators of files have.
        lowest = -127 if self.largest is None else -128
        return ops.cast(int8_rounded(x, ops.maximum(largest, 1e-9) / 127, lowest), inputs.dtype)

    def _moving_average(self, found, training):
        before = ops.convert_to_tensor(self.largest)
        if training:
            after = ops.where(before == 0, found, self.momentum * before + (1 - self.momentum) * found)
            self.largest.assign(after)
            return after
        return ops.where(before == 0, found, before)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


def picked(variable: keras.Variable | None, indices: Tensor | None) -> Any:
    """The value of a variable, or some of its rows."""
    if variable is None:
        return None
    # A tensor, even where TensorFlow takes a variable for one.
    return ops.reshape(variable, variable.shape) if indices is None else ops.take(variable, indices, axis=0)
