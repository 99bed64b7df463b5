"""Batches of images for `model.fit`, and normalization inside the model."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.data.batch_stream import by_rows
from keras_transformer.utils.types import ArrayLike, Tensor


def batches(
    examples: tuple[ArrayLike, ArrayLike],
    batch_size: int,
    num_classes: int,
    *,
    augmentation: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    label_smoothing: float = 0.0,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Returns a `tf.data.Dataset` of batches: images as float32 pixels from 0 to 255, labels as float32 distributions.

    Data sets made with the same arguments have the same batches, epoch by epoch. Order and augmentation differ between
    epochs.

    Args:
        examples: an `ImageSet`, or a pair of images, `(n, H, W, C)`, and integer labels, `(n,)`.
        batch_size: int >= 1.
        num_classes: int >= 2.
        augmentation: an `Augmentation`, or another function of images, labels and seed that returns images and labels.
        label_smoothing: float in [0, 1). The part of each label that is distributed evenly over all classes. Default 0.
        shuffle: bool. Whether to shuffle in every epoch and drop an incomplete last batch, for training. Default False.
        seed: int. Seed of the shuffling and the augmentation. Default 0.

    Returns:
        A `tf.data.Dataset` of pairs `(B, H, W, C)` and `(B, num_classes)`.

    Raises:
        ValueError: `shuffle` with fewer images than a batch; numbers of images and labels differ; a label that is not a
            class; an argument out of its range.

    Example:

    >>> import numpy as np
    >>> images, labels = np.zeros((10, 8, 8, 1), "uint8"), np.arange(10) % 2
    >>> [tuple(pixels.shape) for pixels, _ in batches((images, labels), 4, num_classes=2)]
    [(4, 8, 8, 1), (4, 8, 8, 1), (2, 8, 8, 1)]
    """
    images, labels = (np.asarray(part) for part in examples)
    _check(images, labels, batch_size, num_classes, label_smoothing, shuffle)
    with tf.device("CPU:0"):  # Where batches are gathered, even if the model is on a GPU.
        all_images, all_labels = tf.constant(images), tf.constant(labels)

    def take(indices, augmentation_seed):
        pixels = tf.cast(tf.gather(all_images, indices), tf.float32)
        distributions = tf.one_hot(tf.gather(all_labels, indices), num_classes)
        distributions = distributions * (1 - label_smoothing) + label_smoothing / num_classes
        if augmentation is not None:
            pixels, distributions = augmentation(pixels, distributions, augmentation_seed)
        return pixels, distributions

    indices = tf.data.Dataset.range(len(labels))
    if shuffle:
        indices = indices.shuffle(len(labels), seed=seed, reshuffle_each_iteration=True)
    indices = indices.batch(batch_size, drop_remainder=shuffle)
    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    # Two batches in parallel leave cores to the training.
    return by_rows(tf.data.Dataset.zip((indices, seeds)).map(take, num_parallel_calls=2).prefetch(4))


def _check(images, labels, batch_size, num_classes, label_smoothing, shuffle):
    if images.ndim != 4 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(f"Expected images (n, H, W, C) and labels (n,). Received: {images.shape} and {labels.shape}")
    if not np.issubdtype(labels.dtype, np.integer) or labels.min(initial=0) < 0 or labels.max(initial=0) >= num_classes:
        raise ValueError(f"Labels must be integers from 0 to {num_classes - 1}. Received: {np.unique(labels)[:20]}")
    if batch_size < 1 or (shuffle and batch_size > len(labels)):
        raise ValueError(f"batch_size must be between 1 and the {len(labels)} images. Received: {batch_size}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1). Received: {label_smoothing}")


def on_pixels(model: keras.Model, images: ArrayLike, name: str | None = None) -> keras.Model:
    """Adds the normalization of `images` to a model, so that its inputs are pixels from 0 to 255.

    The mean and the standard deviation of each channel become part of the model, also when it is exported.

    Args:
        model: a Functional or Sequential `keras.Model` with one input `(B, H, W, C)`. Its weights are shared.
        images: `(n, H, W, C)`. The training images, whose mean and standard deviation are used.
        name: str or None.

    Returns:
        A `keras.Model` with an input "images" of pixels, and the outputs of `model`.

    Example:

    >>> import keras, numpy as np
    >>> images = np.array([[[[0.0], [200.0]]]])
    >>> inner = keras.Sequential([keras.Input((1, 2, 1)), keras.layers.Flatten()])
    >>> on_pixels(inner, images)(images).numpy()
    array([[-1.,  1.]], dtype=float32)
    """
    images = np.asarray(images)
    mean = images.mean(axis=(0, 1, 2), dtype="float64")
    variance = images.var(axis=(0, 1, 2), dtype="float64")
    # A constant channel is only shifted.
    variance[variance == 0] = 1.0
    pixels = keras.Input(model.inputs[0].shape[1:], name="images", dtype="float32")
    # In float32 under every policy: half precision would round pixels.
    normalize = keras.layers.Normalization(
        mean=mean.tolist(), variance=variance.tolist(), dtype="float32", name="normalization"
    )
    inputs = normalize(pixels)
    if not isinstance(model, keras.Sequential):
        inputs = keras.tree.pack_sequence_as(model.input, [inputs])
    # Calling the layers one by one keeps their names and those of the outputs.
    return keras.Model(pixels, model.call(inputs), name=name)
