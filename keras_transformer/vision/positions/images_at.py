"""Which image of a row each of its image tokens belongs to."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


def images_at(number: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Finds images in the tokens of all images of a row, one image after another.

    Args:
        number: int32 `(1 | B, T)`: numbers of image tokens, from 0.
        grid: int32 `(B, I, 2)`: rows and columns of tokens of each image, zeros for none.

    Returns:
        Two int32 tensors `(B, T, I)` of 0 and 1: the images whose tokens all come before that number, and the image that it
        belongs to. A number beyond the last token belongs to none.

    Example:

    >>> import numpy as np
    >>> before, here = images_at(np.array([[0, 2, 3]]), np.array([[[1, 2], [0, 0], [1, 1]]]))
    >>> before.numpy().tolist(), here.numpy().tolist()
    ([[[0, 0, 0], [1, 1, 0], [1, 1, 1]]], [[[1, 0, 0], [0, 0, 1], [0, 0, 0]]])
    """
    counts = ops.cast(grid[:, :, 0] * grid[:, :, 1], "int32")
    ends = ops.cumsum(counts, axis=1)
    number = ops.expand_dims(ops.cast(number, "int32"), 2)
    before = ops.greater_equal(number, ops.expand_dims(ends, 1))
    here = ops.logical_and(ops.greater_equal(number, ops.expand_dims(ends - counts, 1)), ops.logical_not(before))
    return ops.cast(before, "int32"), ops.cast(here, "int32")


def of_images(chosen: Tensor, values: Tensor) -> Tensor:
    """Returns the sum of values `(B, I)` of the chosen images `(B, T, I)`, int32 `(B, T)`."""
    return ops.sum(chosen * ops.expand_dims(ops.cast(values, "int32"), 1), axis=2)
