"""Numbers that stand for nothing, such as the logarithm of a zero weight, within the range of fp16.

A model masks by adding a number like -1e30, and asks by comparing with -5e29 whether a value is there. In fp16, whose
largest number is 65504, both become infinities, or that number: differences are no numbers, and comparisons wrong. They
become -3e4 and -1.5e4 here. The exponential of a number below -104 is zero in float32 as well, and sums with values of the
model stay in the range.
"""

from __future__ import annotations

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor

_LEAST = 1e8
_LARGEST = 3e4


def without_large_numbers(editor: Editor) -> None:
    """Constants of 1e8 and above become numbers of 3e3 to 3e4, in the order that they had within a power of ten."""
    for name, array in list(editor.constants()):
        if array.dtype == np.float32 and array.size and np.abs(array).max() >= _LEAST:
            editor.set_value(name, within_range(array))


def within_range(array: np.ndarray) -> np.ndarray:
    """The array with numbers of 1e8 and above divided by the next power of ten, and multiplied by 3e4.

    Example:

    >>> within_range(np.array([-1e30, -5e29, 2.0], "float32")).tolist()
    [-30000.0, -15000.0, 2.0]
    """
    exact = array.astype("float64")
    magnitude = np.minimum(np.abs(exact), float(np.finfo("float32").max))
    is_large = magnitude >= _LEAST
    # The nearest float32 of a power of ten may be a little above it.
    power = np.ceil(np.log10(np.where(is_large, magnitude, _LEAST)) - 1e-6)
    scaled = np.sign(exact) * np.minimum(magnitude / 10.0**power, 1.0) * _LARGEST
    return np.where(is_large, scaled, exact).astype("float32")
