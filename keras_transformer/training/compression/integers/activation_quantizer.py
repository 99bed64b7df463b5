"""Fake quantization of an activation in 8 bits, with a range that is learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_transformer.training.compression.fake_quantization import fake_quantized_within
from keras_transformer.utils.types import LayerOptions, Shape, Tensor

# What a learned end is at least, as a share of its average.
_LEAST_SHARE = 0.05
# The least range: no activation is a constant.
_LEAST_RANGE = 1e-6


class ActivationQuantizer(keras.layers.Layer):
    """Fake quantization of an activation: `(q - zero) * scale`, with integers q from -128 to 127.

    `scale = (largest - least) / 255`, and 0 is one of the numbers. Both ends are moving averages over the batches of
    training, times learned factors; before the first batch, those of the batch. An activation function whose integer kernels
    have a fixed scale has a fixed range.

    Args:
        step: "learned" for factors that are trained, "straight_through" for averages alone.
        fixed: tuple of floats: the least and the largest number, if these are fixed; or None.
        momentum: float. Of the moving averages. Default 0.95.

    Attributes:
        observe: function of the quantizer and a tensor, called in place of rounding; None to round.

    Example:

    >>> quantizer = ActivationQuantizer("straight_through")
    >>> quantizer(ops.array([[-0.984375, 0.26, 3.0]])).numpy().tolist()
    [[-0.984375, 0.265625, 3.0]]

    Reference: Jacob et al., arXiv 1712.05877, section 3.1 (moving averages); Esser et al., arXiv 1902.08153, and Bhalgat et
    al., arXiv 2004.09576, equations 3 and 4 (gradients of scale and offset). Deviations: the two ends are trained, as
    factors of the averages, which begin with 1; their gradients are not scaled.
    """

    observe: Callable[[ActivationQuantizer, Tensor], None] | None = None

    def __init__(
        self,
        step: str,
        fixed: tuple[float, float] | None = None,
        momentum: float = 0.95,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.step_kind, self.fixed, self.momentum = step, fixed, momentum
        self.supports_masking = True
        self.averages: keras.Variable = None
        self.relative_range: keras.Variable = None

    def build(self, input_shape: Shape | None = None) -> None:
        if self.fixed is not None:
            return
        options: dict[str, object] = {"shape": (2,), "dtype": "float32", "autocast": False}
        self.averages = self.add_weight(
            name="averages", initializer="zeros", trainable=False, aggregation="mean", **options
        )
        if self.step_kind == "learned":
            self.relative_range = self.add_weight(name="relative_range", initializer="ones", **options)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if self.observe is not None:
            self.observe(self, inputs)
            return inputs
        x = ops.cast(inputs, "float32")
        return ops.cast(fake_quantized_within(x, self._ends(x, training)), inputs.dtype)

    def range(self) -> tuple[float, float] | None:
        """The least and the largest number of files; None before the first batch."""
        if self.fixed is not None:
            return self.fixed
        if not ops.convert_to_numpy(self.averages).any():
            return None
        least, largest = ops.convert_to_numpy(self._learned(ops.reshape(self.averages, (2,)))).tolist()
        return least, largest

    def _ends(self, x, training):
        return (
            ops.convert_to_tensor(self.fixed) if self.fixed is not None else self._learned(self._averages(x, training))
        )

    def _averages(self, x, training):
        """The moving averages of the ends, with those of a batch."""
        before = ops.reshape(self.averages, (2,))
        values = ops.stop_gradient(x)
        found = ops.stack([ops.minimum(ops.min(values), 0.0), ops.maximum(ops.max(values), _LEAST_RANGE)])
        is_new = ops.all(before == 0)
        if not training or not self.trainable:
            return ops.where(is_new, found, before)
        after = ops.where(is_new, found, self.momentum * before + (1 - self.momentum) * found)
        self.averages.assign(after)
        return after

    def _learned(self, averages):
        if self.relative_range is None:
            return averages
        # A tensor, even where TensorFlow takes a variable for one.
        return ops.maximum(ops.reshape(self.relative_range, (2,)), _LEAST_SHARE) * averages

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
