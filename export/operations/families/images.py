"""Operations of images."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.export.operations.operation import Decomposed, Operation, in_both
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


def hue_saturation_value(images: Tensor) -> Tensor:
    red, green, blue = (images[..., number : number + 1] for number in range(3))
    value, least = tf.maximum(tf.maximum(red, green), blue), tf.minimum(tf.minimum(red, green), blue)
    spread = value - least
    is_gray = spread <= 0.0
    sixth = 1.0 / (6.0 * tf.where(is_gray, tf.ones_like(spread), spread))
    hue = tf.where(
        tf.equal(red, value),
        sixth * (green - blue),
        tf.where(tf.equal(green, value), sixth * (blue - red) + 2.0 / 6.0, sixth * (red - green) + 4.0 / 6.0),
    )
    hue = tf.where(is_gray, tf.zeros_like(hue), tf.where(hue < 0.0, hue + 1.0, hue))
    is_black = value <= 0.0
    saturation = tf.where(is_black, tf.zeros_like(value), spread / tf.where(is_black, tf.ones_like(value), value))
    return tf.concat([hue, saturation, value], -1)


def red_green_blue(images: Tensor) -> Tensor:
    hue, saturation, value = (images[..., number : number + 1] for number in range(3))
    angle = hue * 6.0
    shares = (tf.abs(angle - 3.0) - 1.0, 2.0 - tf.abs(angle - 2.0), 2.0 - tf.abs(angle - 4.0))
    parts = [tf.minimum(tf.maximum(each, 0.0), 1.0) for each in shares]
    return tf.concat([((1.0 - saturation) + saturation * each) * value for each in parts], -1)


_PATCHES = Decomposed(patches, ("ksizes", "strides", "rates", "padding"))
_HSV, _RGB = Decomposed(hue_saturation_value), Decomposed(red_green_blue)

OPERATIONS = (
    Operation("ExtractImagePatches", in_both(_PATCHES)),
    Operation("HSVToRGB", in_both(_RGB), rounds=True),
    Operation("ResizeBicubic", rounds=True),
    Operation("ResizeBilinear", rounds=True),
    Operation("RGBToHSV", in_both(_HSV), rounds=True),
)
