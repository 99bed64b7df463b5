"""The classes of pixels as arrays, for training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.processing.image_loading import pillow

# The label of pixels that do not count, in the data sets of the field.
IGNORED = 255


def mask_targets(masks: Sequence[ArrayLike], size: tuple[int, int], *, reduce_labels: bool = False) -> np.ndarray:
    """Segmentation maps of images of any size, as one array of the size of a model's images.

    Args:
        masks: list of integer arrays `(height, width)` or Pillow images: the class of each pixel, 0 to 254; 255 for pixels
            that do not count.
        size: pair of ints: height and width of the result, those of the processed images.
        reduce_labels: bool. Whether 0 is no class, as in ADE20K: it becomes 255, and the classes become one less.

    Returns:
        int32 array `(masks, height, width)`: the class of the nearest pixel.

    Raises:
        ValueError: a map of another rank, or with a value below 0 or above 255.

    Example:

    >>> mask_targets([np.array([[0, 1], [2, 255]])], (2, 4), reduce_labels=True).tolist()
    [[[255, 255, 0, 0], [1, 1, 255, 255]]]
    """
    image = pillow().Image
    targets = []
    for index, mask in enumerate(masks):
        array = np.asarray(mask)
        is_map = array.ndim == 2 and array.dtype.kind in "iub"
        if not is_map or array.min(initial=0) < 0 or array.max(initial=0) > IGNORED:
            extent = f", values {array.min()} to {array.max()}" if array.size else ""
            raise ValueError(
                f"Mask {index} must have integers from 0 to {IGNORED}, (height, width). "
                f"Received: {array.dtype} {array.shape}{extent}"
            )
        picture = image.fromarray(array.astype("uint8")).resize(tuple(size)[::-1], image.Resampling.NEAREST)
        targets.append(np.asarray(picture).astype("int32"))
    labels = np.stack(targets) if targets else np.zeros((0, *size), "int32")
    if reduce_labels:
        labels = np.where((labels == 0) | (labels == IGNORED), IGNORED, labels - 1)
    return labels
