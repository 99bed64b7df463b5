"""AWQ: channels with large activations get finer weights."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.methods.clipping import Clipping
from keras_transformer.quantization.methods.method import Method
from keras_transformer.quantization.observation.calibration import calibrate
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.rounding import best_scales, codes_of, in_blocks, values_of
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.quantization.transforms.folding import Fold, find_folds, geometric

if TYPE_CHECKING:
    from keras_transformer.quantization.kernels import Kernel
    from keras_transformer.quantization.observation.calibration import Batch


class AWQ(Method):
    """Multiplies input channels of weights by `s = mean |x|^α`, and divides the norm or the weight that computes x by s.

    α is the one of a grid from 0 to 1 with the least squared error of the outputs of all weights that read x. The float
    outputs of the model stay as they are; where no layer before x can be divided, nothing is multiplied. Then the weights
    are rounded by another method.

    Args:
        rounding: `Method` that rounds. None: `Clipping()`.
        grid: int >= 1. Steps of α. Default 20.

    Raises:
        WeightQuantizationError: `grid` is below 1.

    Example:

    >>> from keras_transformer.quantization import GPTQ, WeightScheme, quantize_weights
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.LayerNormalization(), keras.layers.Dense(64)])
    >>> data = keras.random.normal((100, 64)) * keras.ops.arange(1.0, 65.0)
    >>> weights = quantize_weights(model, WeightScheme(4), AWQ(rounding=GPTQ()), data)

    Reference: Lin et al., AWQ, arXiv 2306.00978, section 3.2. Deviations: the error is that of the second moments of all x,
    and not that of a sample; clipping is `Clipping`'s; which layers can be divided is found by trying, see `folding`.
    """

    def __init__(self, rounding: Method | None = None, grid: int = 20) -> None:
        if grid < 1:
            raise WeightQuantizationError(f"grid must be at least 1. Received: {grid!r}")
        self.rounding, self.grid = rounding or Clipping(), grid

    def prepare(
        self, model: keras.Model, pairs: Sequence[tuple[Kernel, WeightScheme]], batches: Sequence[Batch], verbose: bool
    ) -> None:
        schemes = {kernel.path: scheme for kernel, scheme in pairs}
        folds = [fold for fold in find_folds(model, batches[0]) if any(each.path in schemes for each in fold.readers)]
        if verbose:
            print(f"{len(folds)} groups of weights with a layer that takes their factors", file=sys.stderr, flush=True)
        by_reader = {fold.readers[0].path: index for index, fold in enumerate(folds)}
        factors = {}
        for ready in calibrate(model, [fold.readers[0] for fold in folds], batches, verbose):
            for kernel, statistics in ready:
                fold = folds[by_reader[kernel.path]]
                weights = [(each.rows(), schemes[each.path]) for each in fold.readers if each.path in schemes]
                factors[kernel.path] = self.factors(fold, weights, statistics)
        for fold in folds:
            if fold.readers[0].path in factors:
                fold.apply(factors[fold.readers[0].path])
        self.rounding.prepare(model, pairs, batches, verbose)

    def factors(
        self, fold: Fold, weights: Sequence[tuple[np.ndarray, WeightScheme]], statistics: Statistics
    ) -> np.ndarray:
        """The factors of the channels of a fold with the least error, of its weights `(rows, scheme)`."""
        magnitudes = np.maximum(fold.of_channels(statistics.mean_magnitude), 1e-8)
        best, least = np.ones(fold.width), np.inf
        for power in np.linspace(0.0, 1.0, self.grid + 1):
            factors = np.clip(geometric(magnitudes**power), 1e-4, 1e4)
            wide = factors[fold.channels].astype("float32")
            error = sum(statistics.error(_rounded(rows * wide, scheme) / wide - rows) for rows, scheme in weights)
            if error < least:
                best, least = factors, error
        return best

    def round(self, rows: np.ndarray, scheme: WeightScheme, statistics: Statistics | None = None) -> Blocks:
        return self.rounding.round(rows, scheme, statistics)


def _rounded(rows, scheme):
    """Rows rounded by the scales of their range."""
    blocked = in_blocks(rows, scheme)
    scale, minimum = best_scales(blocked, scheme, np.ones((1, 1, 1), "float32"), (1.0,))
    return values_of(codes_of(blocked, scale, minimum, scheme), scale, minimum).reshape(rows.shape)
