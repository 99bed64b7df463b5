"""Sizes of tensors: numbers where they are known while a function is traced."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.utils.types import Tensor


def size(x: Tensor, axis: int) -> int | Tensor:
    """The size of a tensor along an axis: an int, or an int32 tensor where it is dynamic."""
    known = x.shape[axis]
    return tf.shape(x)[axis] if known is None else known
