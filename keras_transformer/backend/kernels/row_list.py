"""Lists of rows for loops on TensorFlow, which layers do not import."""

from __future__ import annotations

from typing import Any

from keras_transformer.utils.types import Tensor


def row_list(like: Tensor, count: int | Tensor) -> Any:
    """Returns an empty `tf.TensorArray` of `count` rows.

    Args:
        like: tensor `(n, ...)` whose rows have the dtype and shape of the new ones.
        count: int or int tensor `()`.
    """
    import tensorflow as tf

    return tf.TensorArray(like.dtype, count, element_shape=like.shape[1:])
