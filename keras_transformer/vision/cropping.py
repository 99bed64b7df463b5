"""Center crops and padding of images."""

from collections.abc import Sequence

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


def padded(images: Sequence[np.ndarray], size: Sequence[int] | None = None) -> list[np.ndarray]:
    """Returns arrays `(H, W, C)` of one size, with zeros at the bottom and on the right.

    Args:
        images: list of arrays.
        size: `(height, width)`, at least that of every image; None for the largest height and width among them.

    Example:

    >>> [image.shape for image in padded([np.ones((2, 3, 1)), np.ones((4, 1, 1))])]
    [(4, 3, 1), (4, 3, 1)]
    """
    height, width = (max(image.shape[axis] for image in images) for axis in (0, 1)) if size is None else size
    return [np.pad(image, [(0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)]) for image in images]
