"""Rounding to the nearest integers."""

from keras_transformer.quantization.methods.method import Method


class Nearest(Method):
    """Rounds each weight to the nearest integer, by scales of the least squared error of the weights. It needs no data.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.quantization import WeightScheme
    >>> Nearest().round(np.array([[1.0, -2.0, 0.5, 0.25] * 8]), WeightScheme()).values[0, :4].tolist()
    [1.0, -2.0, 0.5, 0.25]
    """

    needs_data = False
