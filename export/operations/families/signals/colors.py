"""Colors of images."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.operations.operation import Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


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


def with_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Each channel is as many times as far from its mean."""
    mean = tf.reduce_mean(images, [-3, -2], keepdims=True)
    return (images - mean) * factor + mean


def with_hue(images: Tensor, step: Tensor) -> Tensor:
    hue, saturation, value = tf.split(hue_saturation_value(images), 3, -1)
    hue = hue + step
    return red_green_blue(tf.concat([hue - tf.floor(hue), saturation, value], -1))


def with_saturation(images: Tensor, factor: Tensor) -> Tensor:
    hue, saturation, value = tf.split(hue_saturation_value(images), 3, -1)
    saturation = tf.minimum(tf.maximum(saturation * factor, 0.0), 1.0)
    return red_green_blue(tf.concat([hue, saturation, value], -1))


_HSV, _RGB = Decomposed(hue_saturation_value), Decomposed(red_green_blue)
_CONTRAST, _HUE, _SATURATION = (Decomposed(each) for each in (with_contrast, with_hue, with_saturation))

OPERATIONS = (
    Operation("AdjustContrastv2", in_both(_CONTRAST), rounds=True),
    Operation("AdjustHue", in_both(_HUE), rounds=True),
    Operation("AdjustSaturation", in_both(_SATURATION), rounds=True),
    Operation("HSVToRGB", in_both(_RGB), rounds=True),
    Operation("RGBToHSV", in_both(_HSV), rounds=True),
)
