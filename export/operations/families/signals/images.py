"""Parts of images, and images seen from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.operations.operation import Attributes, Decomposed, Operation, in_both
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor


def patches(
    images: Tensor, *, ksizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str
) -> Tensor:
    """The elements of each patch one behind the other: a slice of the images for each place in a patch.

    Patches that lie side by side, as of a vision transformer, are a transposition.
    """
    sizes, steps, rates = (tuple(each[1:3]) for each in (ksizes, strides, rates))
    reach = [rate * (size - 1) + 1 for size, rate in zip(sizes, rates, strict=True)]
    images = _padded(images, reach, steps) if padding == "SAME" else images
    shape = tf.shape(images)
    counts = [(shape[1 + axis] - reach[axis]) // steps[axis] + 1 for axis in (0, 1)]
    if sizes == steps and rates == (1, 1):
        return _side_by_side(images, sizes, counts)
    found: list[Tensor] = []
    for row in range(sizes[0]):
        for column in range(sizes[1]):
            ranges: list[slice] = []
            for axis, place in enumerate((row, column)):
                first = place * rates[axis]
                ranges.append(slice(first, first + (counts[axis] - 1) * steps[axis] + 1, steps[axis]))
            found.append(images[:, ranges[0], ranges[1]])
    return tf.concat(found, -1)


def _padded(images: Tensor, reach: Sequence[int], steps: Sequence[int]) -> Tensor:
    """Images with as many zeros around them that patches begin at every multiple of a step."""
    pads = [[0, 0]]
    for axis in (0, 1):
        size = tf.shape(images)[1 + axis]
        count = (size + steps[axis] - 1) // steps[axis]
        missing = tf.maximum((count - 1) * steps[axis] + reach[axis] - size, 0)
        pads.append([missing // 2, missing - missing // 2])
    return tf.pad(images, [*pads, [0, 0]])


def _side_by_side(images: Tensor, sizes: Sequence[int], counts: Sequence[Tensor]) -> Tensor:
    (height, width), (rows, columns), channels = sizes, counts, tf.shape(images)[-1]
    images = images[:, : rows * height, : columns * width]
    split = tf.reshape(images, tf.stack([-1, height, columns, width * channels]))
    return tf.reshape(tf.transpose(split, [0, 2, 1, 3]), tf.stack([-1, rows, columns, height * width * channels]))


def projected(
    images: Tensor, transforms: Tensor, shape: Tensor, fill_value: Tensor, *, interpolation: str, fill_mode: str
) -> Tensor:
    """The element, or the mean of four, to which a projective transformation leads from each place of the result."""
    x, y = (tf.cast(tf.range(shape[number]), tf.float32) for number in (1, 0))
    y = tf.expand_dims(y, 1)
    # The last number of each matrix is 1. A constant would be moved to the front of its sum, which rounds otherwise then.
    matrices = tf.pad(transforms, [[0, 0], [0, 1]], constant_values=1.0)
    factors = tf.unstack(tf.reshape(matrices, [-1, 9, 1, 1]), axis=1)
    column, row, depth = (a * x + b * y + c for a, b, c in (factors[:3], factors[3:6], factors[6:]))
    is_far = tf.equal(depth, 0.0)
    depth = tf.where(is_far, tf.ones_like(depth), depth)
    places = [row / depth, column / depth]
    places = [_within(place, size(images, axis), fill_mode) for axis, place in enumerate(places, 1)]
    fill, pixels = tf.cast(fill_value, tf.float32), tf.cast(images, tf.float32)
    if interpolation == "NEAREST":
        found = _read(pixels, [_rounded(each) for each in places], fill)
    else:
        found = _mean_of_four(pixels, places, fill)
    return tf.cast(tf.where(tf.expand_dims(is_far, 3), fill, found), images.dtype)


def cropped_and_resized(
    images: Tensor, boxes: Tensor, numbers: Tensor, sizes: Tensor, *, method: str, extrapolation_value: float
) -> Tensor:
    """The part of an image in each box, of one size: the element, or the mean of four, at each of its places."""
    places: list[Tensor] = []
    is_inside = tf.constant(True)
    for axis, shape in ((0, [-1, 1]), (1, [1, -1])):
        last = tf.cast(size(images, axis + 1), tf.float32) - 1.0
        first, end = (tf.reshape(boxes[:, each], [-1, 1, 1]) for each in (axis, axis + 2))
        steps = tf.cast(sizes[axis] - 1, tf.float32)
        step = tf.reshape(tf.cast(tf.range(sizes[axis]), tf.float32), shape) * (
            (end - first) * last / tf.maximum(steps, 1.0)
        )
        place = tf.where(steps > 0.0, first * last + step, 0.5 * (first + end) * last)
        is_inside = tf.logical_and(is_inside, tf.logical_and(place >= 0.0, place <= last))
        places.append(tf.minimum(tf.maximum(place, 0.0), last))
    fill, pixels = tf.constant(extrapolation_value), tf.cast(images, tf.float32)
    if method == "nearest":
        found = _read(pixels, [_rounded(each) for each in places], fill, numbers)
    else:
        found = _mean_of_four(pixels, places, fill, numbers)
    return tf.where(tf.expand_dims(is_inside, 3), found, fill)


def _within(place: Tensor, length: int | Tensor, fill_mode: str) -> Tensor:
    """A place that is outside of an image, moved into it; or next to it, where it is to be filled."""
    length = tf.cast(length, tf.float32)
    last = length - 1.0
    if fill_mode == "CONSTANT":
        return tf.minimum(tf.maximum(place, -2.0), length + 1.0)
    is_before, is_behind = place < 0.0, place > last
    if fill_mode == "REFLECT":
        before = 2.0 * length * tf.floor(-place / (2.0 * length)) + place
        before = tf.where(before < -length, before + 2.0 * length, -before - 1.0)
        behind = place - 2.0 * length * tf.floor(place / (2.0 * length))
        behind = tf.where(behind >= length, 2.0 * length - behind - 1.0, behind)
        place = tf.where(is_before, before, tf.where(is_behind, behind, place))
    elif fill_mode == "WRAP":
        period = tf.maximum(last, 1.0)
        before = place + length * (tf.floor(-place / period) + 1.0)
        behind = place - length * tf.floor(place / period)
        place = tf.where(is_before, before, tf.where(is_behind, behind, place))
    return tf.minimum(tf.maximum(place, 0.0), last)


def _rounded(place: Tensor) -> Tensor:
    """The nearest integer, that further from 0 of two."""
    whole = tf.floor(tf.abs(place))
    return tf.sign(place) * tf.where(tf.abs(place) - whole >= 0.5, whole + 1.0, whole)


def _mean_of_four(images: Tensor, places: Sequence[Tensor], fill: Tensor, numbers: Tensor | None = None) -> Tensor:
    """The mean of the four elements around each place, by its distance from them."""
    (row, column), (y, x) = ([tf.floor(each) for each in places], places)
    down, right = (tf.expand_dims(place - whole, 3) for place, whole in ((y, row), (x, column)))
    rows: list[Tensor] = []
    for each in (row, row + 1.0):
        first, second = (_read(images, (each, other), fill, numbers) for other in (column, column + 1.0))
        rows.append((1.0 - right) * first + right * second)
    return (1.0 - down) * rows[0] + down * rows[1]


def _read(images: Tensor, places: Sequence[Tensor], fill: Tensor, numbers: Tensor | None = None) -> Tensor:
    """The elements of images in whole rows and columns `(results, height, width)`; a number outside of them.

    Args:
        images: (images, height, width, channels).
        places: the rows, and the columns.
        fill: the number.
        numbers: of which image each result is; each of its own by default.
    """
    batch, *lengths, channels = (size(images, axis) for axis in range(4))
    rows, columns = (tf.cast(each, tf.int32) for each in places)
    is_inside = tf.constant(True)
    for each, length in zip((rows, columns), lengths, strict=True):
        is_inside = tf.logical_and(is_inside, tf.logical_and(each >= 0, each < length))
    rows, columns = (
        tf.minimum(tf.maximum(each, 0), length - 1) for each, length in zip((rows, columns), lengths, strict=True)
    )
    image = tf.reshape(tf.range(batch) if numbers is None else numbers, [-1, 1, 1])
    flat = tf.reshape(images, tf.stack([-1, channels]))
    found = tf.gather(flat, (image * lengths[0] + rows) * lengths[1] + columns)
    return tf.where(tf.expand_dims(is_inside, 3), found, fill)


def _of_places(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    """The coordinate of a result among `n` pixels is rounded by up to `n` units, as is a sum of `8 n²` numbers."""
    return 8.0 * max(*inputs[0].shape[1:3], *result.shape[1:3]) ** 2


_PATCHES = Decomposed(patches, ("ksizes", "strides", "rates", "padding"))
_CROPPED = Decomposed(cropped_and_resized, ("method", "extrapolation_value"))
_PROJECTED = Decomposed(projected, ("interpolation", "fill_mode"))

OPERATIONS = (
    Operation("CropAndResize", in_both(_CROPPED), rounds=True, rounds_coordinates=True, sum_length=_of_places),
    Operation("ExtractImagePatches", in_both(_PATCHES)),
    Operation(
        "ImageProjectiveTransformV3", in_both(_PROJECTED), rounds=True, rounds_coordinates=True, sum_length=_of_places
    ),
)
