"""Scales that are trained while the integers stay."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_transformer.training.compression.fake_quantization import codes_of, stored_minimum, straight_through
from keras_transformer.training.compression.quantizers import WeightQuantizer, picked
from keras_transformer.utils.types import Shape, Tensor


class FixedIntegers(WeightQuantizer):
    """A weight with the integers that it had at first, whose scales and minima are trained.

    There is one number to train for 32 or more weights, so that the optimizer needs little memory, and little text is
    enough; what GPTQ chose is kept. The weight itself gets no gradient.

    Reference: Kim et al., Memory-Efficient Fine-Tuning of Compressed Large Language Models via sub-4-bit Integer
    Quantization, arXiv 2305.14152, equation 2. Deviations: minima are trained too, in units of the first steps, and scales
    have the precision of files.
    """

    shift: Any = None

    def build(self, input_shape: Shape | None = None) -> None:
        super().build(input_shape)
        if self.minimum is not None:
            # Adam moves all variables as fast: in steps, minima move as fast as scales do.
            self.minimum.trainable = False
            self.shift = self.add_weight(
                name="shift", shape=self.minimum.shape, initializer="zeros", dtype="float32", autocast=False
            )

    def scales(self, x: Tensor, indices: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        step, minimum = super().scales(x, indices)
        if minimum is None:
            return step, None
        first, unit, shift = (picked(each, indices) for each in (self.minimum, self.initial_step, self.shift))
        return step, straight_through(stored_minimum, first + unit * shift)

    def _quantize(self, x, scales, axis, indices=None):
        step, minimum = scales
        values = self._first_codes(x, indices) * step
        return values if minimum is None else values + minimum

    def _codes(self, x, scale, minimum):
        return self._first_codes(x)

    def _first_codes(self, x, indices=None):
        step, minimum = picked(self.initial_step, indices), picked(self.minimum, indices)
        return ops.stop_gradient(codes_of(x, step, minimum, self.scheme))
