"""The values of the bins of box distributions."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class DistributionBins(keras.layers.Layer):
    """The values of the bins of a distribution over the shift of an edge of a box, close to one another around 0.

        W(n) = sign(n) (s^|n| - 1),   s = (a c + 1)^(2 / (N - 2)),   |n| < N / 2;   W(±N / 2) = ±2 a c

    for n = -N / 2, ..., N / 2. Curvature c and upper bound a are weights that are not trained.

    Args:
        num_bins: int, even and at least 4. N; there are N + 1 values. Default 32.
        curvature: float. c. Default 4.
        upper_bound: float. a. Default 0.5.

    Call arguments:
        inputs: any tensor: it is not read.

    Returns:
        tuple of W, `(N + 1,)`, and |c|, `(1,)`.

    Raises:
        ValueError: `num_bins` is odd or below 4.

    Example:

    >>> import numpy as np
    >>> values, curvature = DistributionBins(num_bins=4, curvature=6.0)(np.zeros(1))
    >>> np.asarray(values).tolist()
    [-6.0, -3.0, 0.0, 3.0, 6.0]

    Reference: Peng et al., D-FINE, arXiv 2410.13842, equation 4, as in its published code.
    """

    curvature: keras.Variable
    upper_bound: keras.Variable

    def __init__(
        self, num_bins: int = 32, curvature: float = 4.0, upper_bound: float = 0.5, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(num_bins, int) or num_bins < 4 or num_bins % 2:
            raise ValueError(f"num_bins must be an even number of at least 4. Received: {num_bins!r}")
        self.num_bins = num_bins
        self._initial = {"curvature": curvature, "upper_bound": upper_bound}

    def build(self, input_shape: Shape) -> None:
        def weight(name):
            start = keras.initializers.Constant(self._initial[name])
            return self.add_weight(name=name, shape=(1,), initializer=start, trainable=False)

        self.curvature, self.upper_bound = weight("curvature"), weight("upper_bound")

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        curvature = ops.abs(ops.convert_to_tensor(self.curvature))
        bound = ops.abs(ops.convert_to_tensor(self.upper_bound)) * curvature
        half = self.num_bins // 2
        index = np.arange(1 - half, half)
        exponents = (np.abs(index) * (2.0 / (self.num_bins - 2))).astype("float32")
        signs = np.sign(index).astype("float32")
        inner = ops.cast(signs, bound.dtype) * (ops.power(bound + 1, ops.cast(exponents, bound.dtype)) - 1)
        return ops.concatenate([-2 * bound, inner, 2 * bound]), curvature

    def compute_output_spec(self, inputs: Tensor) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        dtype = self.compute_dtype
        return keras.KerasTensor((self.num_bins + 1,), dtype=dtype), keras.KerasTensor((1,), dtype=dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_bins": self.num_bins, **self._initial}
