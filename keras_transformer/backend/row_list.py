"""Lists of rows for loops on TensorFlow, which layers do not import."""


def row_list(like, count):
    """A `tf.TensorArray` of `count` rows.

    Args:
        like: tensor `(n, ...)`, whose rows have the dtype and the shape.
        count: int, or a scalar tensor.
    """
    import tensorflow as tf

    return tf.TensorArray(like.dtype, count, element_shape=like.shape[1:])
