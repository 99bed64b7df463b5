"""Dropout whose random numbers cost little, compiled by XLA or not."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.backend.compilation.xla import is_traced_for_xla
from keras_transformer.backend.kernels.counter_based_random import random_integers
from keras_transformer.utils.types import Tensor


def dropout(x: Tensor, rate: float, seed: Tensor, noise_shape: Sequence[int | None] | None = None) -> Tensor:
    """Sets elements to 0 with probability `rate`, and divides the others by `1 - rate`.

    Keras draws 32 bits for each element, by operations that XLA computes slowly on a CPU. Here, in what XLA compiles, the
    numbers are a hash of the index, computed in the same loop as the product; TensorFlow's own operations draw 16 bits for
    each element; other backends draw as Keras does.

    Args:
        x: float of any shape.
        rate: float in (0, 1). The rate of 16 bits is the nearest multiple of 2^-16.
        seed: integers `(2,)`, another pair for each call.
        noise_shape: shape of the mask, with None where it is that of `x`. Defaults to the shape of `x`.

    Returns:
        As `x`.

    Example:

    >>> import numpy as np
    >>> y = np.asarray(dropout(np.ones((100, 1000), "float32"), 0.25, np.array([3, 4], "uint32")))
    >>> bool(((y == 0) | (abs(y - 4 / 3) < 1e-6)).all()), round(float(y.mean()), 2)
    (True, 1.0)
    """
    sizes = ops.shape(x)
    shape = tuple(size if one is None else one for size, one in zip(sizes, noise_shape or sizes, strict=True))
    if is_traced_for_xla():
        kept = ops.greater_equal(random_integers(shape, seed), round(rate * 2**31))
    elif keras.backend.backend() == "tensorflow":
        kept = _kept_by_tensorflow(shape, rate, seed)
    else:
        return keras.random.dropout(x, rate, noise_shape=noise_shape, seed=seed)
    return ops.where(kept, x * ops.cast(1.0 / (1.0 - rate), x.dtype), ops.cast(0.0, x.dtype))


def _kept_by_tensorflow(shape: Sequence[int | Tensor], rate: float, seed: Tensor) -> Tensor:
    import tensorflow as tf

    seed = tf.bitcast(tf.cast(seed, "uint32"), "int32")
    size = tf.reduce_prod(tf.stack(shape))
    pairs = tf.random.stateless_uniform([(size + 1) // 2], seed, minval=None, maxval=None, dtype="uint32")
    drawn = tf.reshape(tf.bitcast(pairs, "uint16"), [-1])[:size]
    return tf.reshape(drawn, shape) >= tf.cast(round(rate * 2**16), "uint16")
