"""Parsing of size settings, the sizes of resized images, and their crops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.utils.processor_config import is_count
from keras_transformer.vision.errors import ImageError, ImageProcessorError

# A limit above the sizes of all models, against mistakes and exhausted memory.
MAX_EDGE = 2**14
FORMS = (
    {"height", "width"},
    {"shortest_edge"},
    {"shortest_edge", "longest_edge"},
    {"longest_edge"},
    {"max_height", "max_width"},
)


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


def size_setting(size: Sequence[int] | Mapping[str, int] | None, name: str = "size") -> dict[str, int] | None:
    """Returns a size setting as a dict of one of five forms.

    Args:
        size: None, a pair `(height, width)`, or a dict of "height" and "width" (exact), of "shortest_edge" (keeps
            proportions), of "shortest_edge" and "longest_edge" (upper bound of the longer edge), of "longest_edge" (keeps
            proportions), or of "max_height" and "max_width" (the largest size within this box).
        name: str. Its name in error messages. Default "size".

    Returns:
        dict of str to int, or None.

    Raises:
        ImageProcessorError: another form, or an edge that is not an int from 1 to 16,384.

    Example:

    >>> size_setting((30, 40))
    {'height': 30, 'width': 40}
    """
    if size is None:
        return None
    if isinstance(size, (tuple, list)) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    if not isinstance(size, dict) or set(size) not in FORMS:
        forms = "; ".join(", ".join(sorted(form)) for form in FORMS)
        raise ImageProcessorError(f"{name} must be (height, width) or a dict of: {forms}. Received: {size!r}")
    for edge, length in size.items():
        if not is_count(length) or length > MAX_EDGE:
            raise ImageProcessorError(f"{edge!r} of {name} must be an int from 1 to {MAX_EDGE}. Received: {length!r}")
    if {"longest_edge", "shortest_edge"} <= set(size) and size["longest_edge"] < size["shortest_edge"]:
        raise ImageProcessorError(f"The longest edge of {name} is shorter than the shortest. Received: {size!r}")
    return dict(size)


def resized(height: int, width: int, size: Mapping[str, int], multiple_of: int = 1) -> tuple[int, int]:
    """Returns height and width of an image after resizing; multiples of an int, unless the size is exact.

    Fractions are truncated, as in torchvision and transformers: an edge may be a pixel short of the exact proportions. With
    a "longest_edge" alone they are rounded, as for SAM.

    Raises:
        ImageError: the result has no pixels, or too many.

    Example:

    >>> resized(100, 151, {"shortest_edge": 50})
    (50, 75)
    >>> resized(100, 200, {"max_height": 50, "max_width": 50})
    (25, 50)
    >>> resized(31, 40, {"longest_edge": 10})
    (8, 10)
    """
    if "height" in size:
        return size["height"], size["width"]
    if "max_height" in size:
        scale = min(size["max_height"] / height, size["max_width"] / width)
        new = int(height * scale), int(width * scale)
    elif "shortest_edge" not in size:
        scale = size["longest_edge"] / max(height, width)
        new = int(height * scale + 0.5), int(width * scale + 0.5)
    else:
        new = _by_edge(height, width, size["shortest_edge"], size.get("longest_edge"))
    new = new[0] // multiple_of * multiple_of, new[1] // multiple_of * multiple_of
    if min(new) < 1 or max(new) > 4 * MAX_EDGE:
        raise ImageError(f"an image of {height} x {width} pixels cannot be resized to {new[0]} x {new[1]}")
    return new


def _by_edge(height, width, shortest, longest):
    short, long = min(height, width), max(height, width)
    if longest is None:
        new_long = int(shortest * long / short)
    elif long / short * shortest > longest:
        # The longer edge decides: the shorter one is rounded, and the longer one computed from the unrounded shorter one.
        exact = longest * short / long
        shortest = int(round(exact))
        new_long = long if short == shortest else int(exact * long / short)
    else:
        new_long = long if short == shortest else int(shortest * long / short)
    return (shortest, new_long) if height <= width else (new_long, shortest)
