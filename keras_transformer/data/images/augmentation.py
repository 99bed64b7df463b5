"""Random changes to whole batches of images, in TensorFlow, for use in a `tf.data` pipeline."""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Augmentation:
    """Crops, flips, warps, recolors, erases and mixes the images of a batch, each image in its own way.

    An image is shifted by up to `shift` pixels each way (the same as padding and cropping), flipped, warped, its colors
    changed, a square set to the image's mean, and, last, blended with another image of the batch, labels too.

    Args:
        shift: int >= 0. The largest shift in pixels, along each axis; what comes in from outside is 0.
        flip: bool. Whether half of the images are mirrored left to right.
        warp: float in [0, 1). A random affine map about the center turns, shears, stretches and moves the image: each of
            its six numbers is drawn within this of no change, where 1 is half the side of the image. Bilinear.
        color: float in [0, 1). The contrast is multiplied, and each channel's mean shifted, by up to this fraction.
        cutout: int >= 0. The side of the erased square, in pixels; its center lies anywhere in the image.
        mixup: float >= 0. Alpha of the Beta distribution that the share of the other image is drawn from; 0 for none.

    Call arguments:
        images: float32 `(B, H, W, C)`, pixels from 0 to 255.
        labels: float32 `(B, classes)`.
        seed: int64 `(2,)`. The same seed gives the same changes.

    Returns:
        The changed images and labels, of the same shapes and dtypes.

    Raises:
        ValueError: an argument is out of its range.

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

    def __call__(self, images, labels, seed):
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


def _uniform(shape, seed, low=0.0, high=1.0):
    return tf.random.stateless_uniform(shape, seed, low, high)


def _shift_and_flip(images, shift, flip, seed):
    """Gathers rows and columns: one index per place does both, without a loop over images."""
    size, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    seeds = tf.random.split(seed, 3)
    padded = tf.pad(images, [[0, 0], [shift, shift], [shift, shift], [0, 0]])

    def offsets(seed):  # (B, 1), from 0 to 2 shift.
        return tf.random.stateless_uniform([size, 1], seed, 0, 2 * shift + 1, tf.int32)

    rows = tf.range(height) + offsets(seeds[0])  # (B, H)
    columns = tf.range(width)
    if flip:
        mirrored = _uniform([size, 1], seeds[1]) < 0.5
        columns = tf.where(mirrored, tf.reverse(columns, [0]), columns)
    columns += offsets(seeds[2])  # (B, W)
    images = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)


def _warp(images, strength, seed):
    """Fetches each pixel from where an affine map about the center sends it."""
    size, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    change = _uniform([size, 2, 3], seed, -strength, strength)
    half_width, half_height = (width - 1) / 2, (height - 1) / 2
    # x' = a x + b y + c and y' = d x + e y + f, with the center as the origin and sides of equal length.
    a, b = 1 + change[:, 0, 0], change[:, 0, 1] * width / height
    d, e = change[:, 1, 0] * height / width, 1 + change[:, 1, 1]
    c = change[:, 0, 2] * half_width + half_width - a * half_width - b * half_height
    f = change[:, 1, 2] * half_height + half_height - d * half_width - e * half_height
    none = tf.zeros_like(a)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a, b, c, d, e, f, none, none], axis=1),
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

    def hit(length, seed):  # (B, length): whether the square reaches this row or column.
        start = tf.random.stateless_uniform([size, 1], seed, 0, length, tf.int32) - side // 2
        places = tf.range(length)
        return (places >= start) & (places < start + side)

    square = tf.expand_dims(hit(height, seeds[0]), 2) & tf.expand_dims(hit(width, seeds[1]), 1)
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return tf.where(tf.expand_dims(square, 3), mean, images)


def _mix(images, labels, alpha, seed):
    size = tf.shape(images)[0]
    # Beta(alpha, alpha) from two Gamma variables.
    drawn = tf.random.stateless_gamma([2, size], seed, alpha=alpha)
    share = drawn[0] / tf.maximum(drawn[0] + drawn[1], 1e-12)
    share = tf.minimum(share, 1 - share)  # An image keeps at least half of itself.
    for_images, for_labels = tf.reshape(share, [-1, 1, 1, 1]), tf.reshape(share, [-1, 1])
    # The batch is shuffled already: the neighbor is a random other image.
    images += for_images * (tf.roll(images, 1, axis=0) - images)
    labels += for_labels * (tf.roll(labels, 1, axis=0) - labels)
    return images, labels
