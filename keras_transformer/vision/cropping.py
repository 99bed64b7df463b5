"""Center crops of images."""

import numpy as np


def center_crop(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns the center crop of an array `(H, W, C)`, padded with zeros where the array is smaller.

    Example:

    >>> center_crop(np.arange(5).reshape(1, 5, 1), 1, 2)[0, :, 0].tolist()
    [1, 2]
    >>> center_crop(np.arange(1, 4).reshape(1, 3, 1), 1, 6)[0, :, 0].tolist()
    [0, 0, 1, 2, 3, 0]
    """
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    inside = pixels[max(top, 0) : top + height, max(left, 0) : left + width]
    if inside.shape[:2] == (height, width):
        return inside
    result = np.zeros((height, width, pixels.shape[2]), pixels.dtype)
    top, left = max(-top, 0), max(-left, 0)
    result[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return result
