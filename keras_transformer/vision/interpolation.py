"""Image interpolation as a product with a matrix, which is the same in every runtime."""

import numpy as np

# Parameter of Keys' cubic in torch and OpenCV; TensorFlow's is -0.5.
_CUBIC = -0.75


def _linear(x):
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x):
    x, a = np.abs(x), _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


INTERPOLATIONS = {"bilinear": (_linear, 1), "bicubic": (_cubic, 2)}


def resize_matrix(length: int, new_length: int, interpolation: str = "bilinear") -> np.ndarray:
    """Returns the matrix M of `new = M old` along one axis: half-pixel centers, edges repeated, no antialiasing.

    Args:
        length: int >= 1.
        new_length: int >= 1.
        interpolation: "bilinear" or "bicubic".

    Returns:
        float32 array `(new_length, length)`.

    Example:

    >>> resize_matrix(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]

    Reference: Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981, with a = -0.75, as in torch.
    """
    kernel, reach = INTERPOLATIONS[interpolation]
    centers = (np.arange(new_length) + 0.5) * length / new_length - 0.5
    first = np.floor(centers).astype(int)
    matrix = np.zeros((new_length, length))
    for tap in range(1 - reach, reach + 1):
        weights = kernel(centers - (first + tap))
        np.add.at(matrix, (np.arange(new_length), np.clip(first + tap, 0, length - 1)), weights)
    return matrix.astype("float32")
