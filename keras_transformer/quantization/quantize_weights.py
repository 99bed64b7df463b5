"""Quantization of a model's weights after training."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from keras_transformer.quantization.kernels import chosen, kernels_of
from keras_transformer.quantization.quantized_weights import QuantizedWeights
from keras_transformer.quantization.rounding import round_rows
from keras_transformer.quantization.scheme import WeightScheme


def quantize_weights(
    model: keras.Model, schemes: WeightScheme | Mapping[str, WeightScheme | None] = WeightScheme()
) -> QuantizedWeights:
    """Rounds the weights of a model to integers with scales, in place.

    Args:
        model: `keras.Model`, built, in float32. Its weights get the values that the integers stand for.
        schemes: a `WeightScheme`, or a dict of patterns of paths to schemes; see `kernels.chosen`.

    Returns:
        `QuantizedWeights`, which is the model's attribute `quantized_weights` too.

    Raises:
        WeightQuantizationError: a scheme does not fit the weights; the model is then unchanged.

    Example:

    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")])
    >>> weights = quantize_weights(model, WeightScheme(bits=4, block_size=32))
    >>> weights.nbytes  # Of 16,384: two numbers to a byte, and 128 scales.
    2304
    """
    pairs = chosen(kernels_of(model), schemes)
    weights = QuantizedWeights({kernel.path: round_rows(kernel.rows(), scheme) for kernel, scheme in pairs})
    weights.apply(model)
    return weights
