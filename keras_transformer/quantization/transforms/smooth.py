"""Outliers of activations, moved into weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.observation.calibration import as_batches, calibrate
from keras_transformer.quantization.transforms.folding import find_folds, geometric


def smooth(model: keras.Model, data: Any, strength: float = 0.5, verbose: bool = False) -> list[str]:
    """Divides channels of activations by factors that the weights behind them are multiplied with, in place.

    The factor of channel j is `max |x_j|^strength / max |w_j|^(1 - strength)`. The float outputs stay the same up to
    rounding: activations are divided by way of the norm, or the weight, that computes them. Then 8-bit activations lose
    less: `export(model, directory, quantize="int8")`.

    Args:
        model: Functional `keras.Model`, in float32.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them. Padding does not count.
        strength: float in [0, 1]: the share of the range that moves into the weights. Default 0.5.
        verbose: bool. Whether each node writes a line to stderr.

    Returns:
        The paths of the weights whose inputs were divided.

    Raises:
        WeightQuantizationError: the data does not fit the model, `strength` is out of range, or no layer of the model can
            take factors.

    Example:

    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.LayerNormalization(), keras.layers.Dense(64, name="out")])
    >>> [path.split("/")[1] for path in smooth(model, keras.random.normal((10, 64)))]
    ['out']

    Reference: Xiao et al., SmoothQuant, arXiv 2211.10438, equation 4. Deviation: values before the output of attention and
    gated hidden layers are divided too, where that is exact.
    """
    if not 0 <= strength <= 1:
        raise WeightQuantizationError(f"strength must be in [0, 1]. Received: {strength!r}")
    batches = as_batches(model, data)
    folds = find_folds(model, batches[0])
    if not folds:
        raise WeightQuantizationError(f"no layer of {model.name!r} can take factors of the products behind it")
    by_reader = {fold.readers[0].path: fold for fold in folds}
    largest = {
        kernel.path: statistics.largest
        for ready in calibrate(model, [fold.readers[0] for fold in folds], batches, verbose)
        for kernel, statistics in ready
    }
    for path, activations in largest.items():
        fold = by_reader[path]
        weights = np.max([np.abs(kernel.rows()).max(axis=0) for kernel in fold.readers], axis=0)
        activations, weights = (np.maximum(fold.of_channels(each), 1e-5) for each in (activations, weights))
        fold.apply(geometric(activations**strength / weights ** (1 - strength)))
    return [kernel.path for path in largest for kernel in by_reader[path].readers]
