"""Precision of the scales of 4-bit blocks in XNNPACK."""

import numpy as np


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds float32 values to the precision of bfloat16.

    Example:

    >>> bfloat16(np.array([1.001, 3.0])).tolist()
    [1.0, 3.0]
    """
    bits = array.astype("float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("float32")
