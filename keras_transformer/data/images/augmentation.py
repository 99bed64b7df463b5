"""Image augmentation of whole batches, in TensorFlow, for `tf.data` pipelines."""

from dataclasses import dataclass

import tensorflow as tf

from keras_transformer.utils.types import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Random shifts, flips, affine warps, color changes, cutout and mixup, different for each image of a batch.

    In this order: an image is shifted by up to `shift` pixels each way (the same as padding and cropping), flipped, warped,
    its colors changed, a square set to the image's mean, and blended with another image of the batch, labels included.

    Args:
        shift: int >= 0. Maximum shift in pixels, along each axis; new pixels are 0. Default 0.
        flip: bool. Whether to mirror half of the images left to right. Default False.
        warp: float in [0, 1). Strength of a random affine map about the center (rotation, shear, scale and translation):
            each of its six numbers deviates from the identity by at most this, in units of half the side of the image.
            Bilinear interpolation. Default 0.
        color: float in [0, 1). Maximum relative change of the contrast and of each channel's mean. Default 0.
        cutout: int >= 0. Side of the erased square, in pixels; its center is anywhere in the image. Default 0.
        mixup: float >= 0. Alpha of the Beta distribution of the other image's share; 0 for no mixup. Default 0.

    Call arguments:
        images: float32 `(B, H, W, C)`, pixels from 0 to 255.
        labels: float32 `(B, classes)`.
        seed: int64 `(2,)`. The same seed produces the same changes.

    Returns:
        The augmented images and labels, of the same shapes and dtypes.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> images, labels = tf.ones((2, 4, 4, 3)), tf.eye(2)
    >>> images, labels = Augmentation(shift=1, flip=True)(images, labels, seed=(1, 2))
    >>> tuple(images.shape), labels.numpy().tolist()
    ((2, 4, 4, 3), [[1.0, 0.0], [0.0, 1.0]])

    Reference: shift and flip as in He et al., arXiv 1512.03385, section 4.2; DeVries and Taylor, arXiv 1708.04552 (cutout);
    Zhang et al., arXiv 1710.09412 (mixup; one share per image).
    """

    shift: int = 0
    flip: bool = False
    warp: float = 0.0
    color: float = 0.0
    cutout: int = 0
    mixup: float = 0.0

    def __post_init__(self):
        for name in ("shift", "warp", "color", "cutout", "mixup"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative. Received: {getattr(self, name)}")
        for name in ("warp", "color"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1. Received: {getattr(self, name)}")

    def __call__(self, images: Tensor, labels: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        seeds = tf.random.split(seed, 5)
        if self.shift or self.flip:
            images = _shift_and_flip(images, self.shift, self.flip, seeds[0])
        if self.warp:
            images = _warp(images, self.warp, seeds[4])
        if self.color:
            images = _recolor(images, self.color, seeds[1])
        if self.cutout:
            images = _cut_out(images, self.cutout, seeds[2])
        if self.mixup:
            images, labels = _mix(images, labels, self.mixup, seeds[3])
        return images, labels


def _uniform(shape, seed, low=0.0, high=1.0, dtype=tf.float32):
    return tf.random.stateless_uniform(shape, seed, low, high, dtype)


def _shift_and_flip(images, shift, flip, seed):
    """Shifts and flips in one gather of rows and columns, without a loop over images."""
    size, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    seeds = tf.random.split(seed, 3)
    padded = tf.pad(images, [[0, 0], [shift, shift], [shift, shift], [0, 0]])

    def offsets(seed):  # (B, 1), from 0 to 2 shift.
        return _uniform([size, 1], seed, 0, 2 * shift + 1, tf.int32)

    rows = tf.range(height) + offsets(seeds[0])  # (B, H)
    columns = tf.range(width)
    if flip:
        mirrored = _uniform([size, 1], seeds[1]) < 0.5
        columns = tf.where(mirrored, tf.reverse(columns, [0]), columns)
    columns += offsets(seeds[2])  # (B, W)
    images = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)


def _warp(images, strength, seed):
    """Samples each pixel at its position under an affine map about the center."""
    size, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    change = _uniform([size, 2, 3], seed, -strength, strength)
    half_width, half_height = (width - 1) / 2, (height - 1) / 2
    # x' = a x + b y + c and y' = d x + e y + f, with the center as the origin and sides of equal length.
    a, b = 1 + change[:, 0, 0], change[:, 0, 1] * width / height
    d, e = change[:, 1, 0] * height / width, 1 + change[:, 1, 1]
    c = change[:, 0, 2] * half_width + half_width - a * half_width - b * half_height
    f = change[:, 1, 2] * half_height + half_height - d * half_width - e * half_height
    zeros = tf.zeros_like(a)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a, b, c, d, e, f, zeros, zeros], axis=1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )


def _recolor(images, strength, seed):
    size, channels = tf.shape(images)[0], images.shape[3]
    seeds = tf.random.split(seed, 2)
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    contrast = _uniform([size, 1, 1, 1], seeds[0], 1 - strength, 1 + strength)
    brightness = _uniform([size, 1, 1, channels], seeds[1], 1 - strength, 1 + strength)
    return tf.clip_by_value((images - mean) * contrast + mean * brightness, 0.0, 255.0)


def _cut_out(images, side, seed):
    size, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    seeds = tf.random.split(seed, 2)

    def inside(length, seed):  # (B, length): whether the square covers this row or column.
        start = _uniform([size, 1], seed, 0, length, tf.int32) - side // 2
        indices = tf.range(length)
        return (indices >= start) & (indices < start + side)

    square = tf.expand_dims(inside(height, seeds[0]), 2) & tf.expand_dims(inside(width, seeds[1]), 1)
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return tf.where(tf.expand_dims(square, 3), mean, images)


def _mix(images, labels, alpha, seed):
    size = tf.shape(images)[0]
    # Beta(alpha, alpha) from two Gamma variables.
    drawn = tf.random.stateless_gamma([2, size], seed, alpha=alpha)
    share = drawn[0] / tf.maximum(drawn[0] + drawn[1], 1e-12)
    share = tf.minimum(share, 1 - share)  # An image keeps at least half of its weight.
    for_images, for_labels = tf.reshape(share, [-1, 1, 1, 1]), tf.reshape(share, [-1, 1])
    # The batch is already shuffled: its neighbor is a random image.
    images += for_images * (tf.roll(images, 1, axis=0) - images)
    labels += for_labels * (tf.roll(labels, 1, axis=0) - labels)
    return images, labels
