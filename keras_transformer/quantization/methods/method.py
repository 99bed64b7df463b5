"""What a method of quantization does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.scheme import WeightScheme

if TYPE_CHECKING:
    from keras_transformer.quantization.kernels import Kernel
    from keras_transformer.quantization.observation.calibration import Batch


class Method:
    """Base of the methods by which `quantize_weights` chooses integers.

    Attributes:
        needs_data: bool. Whether it needs calibration data.

    Example:

    >>> class Truncated(Method):
    ...     needs_data = False
    ...
    ...     def round(self, rows, scheme, statistics=None):
    ...         return super().round(np.trunc(rows), scheme)
    >>> Truncated().round(np.full((1, 32), 0.9), WeightScheme()).values[0, 0].item()
    0.0
    """

    needs_data = True

    def prepare(
        self, model: keras.Model, pairs: Sequence[tuple[Kernel, WeightScheme]], batches: Sequence[Batch], verbose: bool
    ) -> None:
        """Rewrites the float weights of a model into others with equal outputs, before they are rounded.

        Args:
            model: `keras.Model`.
            pairs: list of `Kernel` with its `WeightScheme`.
            batches: those of `calibration.as_batches`.
            verbose: bool. Whether progress is written to stderr.
        """

    def round(self, rows: np.ndarray, scheme: WeightScheme, statistics: Statistics | None = None) -> Blocks:
        """The integers of a weight.

        Args:
            rows: float32 `(N, K)`.
            scheme: `WeightScheme`.
            statistics: `Statistics` of the vectors that the rows are multiplied with; None where there are none.

        Returns:
            `Blocks`.
        """
        from keras_transformer.quantization.rounding import round_rows

        return round_rows(rows, scheme)
