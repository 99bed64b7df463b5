"""QR decomposition by Householder's reflections.

Reference: Golub and Van Loan, "Matrix Computations", 4th edition, 2013, algorithm 5.2.1.
"""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.operations.families.linear_algebra.matrices import (
    factorization,
    identity,
    in_batch_of,
    in_one_batch,
    is_of_known_sizes,
    repeated,
)
from keras_transformer.utils.types import Tensor

# No square of a normal vector is smaller, save that of 0.
_LEAST = 1e-37


def qr(x: Tensor, *, full_matrices: bool) -> tuple[Tensor, Tensor]:
    q, r = reflected(in_one_batch(x), full_matrices)
    return in_batch_of(x, q), in_batch_of(x, r)


def reflected(matrix: Tensor, is_full: bool) -> tuple[Tensor, Tensor]:
    """The orthogonal and the triangular factor of `(B, m, n)`, with the signs that LAPACK gives them.

    Args:
        matrix: of known sizes.
        is_full: whether the orthogonal factor is `(B, m, m)`, and not `(B, m, min(m, n))`.
    """
    rows, columns = matrix.shape[1:]
    count = min(rows, columns)
    start = identity(rows) + tf.zeros_like(matrix[:, :, :1])

    def column(number: Tensor, left: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        normal = _normal(tf.gather(left, number, axis=2), number)[:, :, tf.newaxis]
        scale = 2.0 / tf.maximum(tf.reduce_sum(normal * normal, 1, keepdims=True), _LEAST)
        scaled = tf.linalg.matrix_transpose(normal * scale)
        return left - normal * tf.matmul(scaled, left), q - tf.matmul(q, normal) * scaled

    r, q = repeated(count, column, matrix, start)
    kept = rows if is_full else count
    is_upper = tf.range(rows)[:, tf.newaxis] <= tf.range(columns)
    return q[:, :, :kept], tf.where(is_upper, r, 0.0)[:, :kept]


def _normal(column: Tensor, number: Tensor) -> Tensor:
    """The normal of the plane that mirrors a column `(B, m)` to zeros below an element, whose sign changes.

    Zeros where there is nothing to mirror: LAPACK leaves such a column as it is.
    """
    positions = tf.range(column.shape[1])
    below = tf.where(positions >= number, column, 0.0)
    length = tf.sqrt(tf.reduce_sum(below * below, 1, keepdims=True))
    first = tf.gather(column, number, axis=1)[:, tf.newaxis]
    normal = below + tf.where(tf.equal(positions, number), tf.where(first < 0.0, -length, length), 0.0)
    rest = tf.reduce_max(tf.where(positions > number, tf.abs(column), 0.0), 1, keepdims=True)
    return tf.where(rest > 0.0, normal, 0.0)


OPERATIONS = (factorization("Qr", qr, "full_matrices", when=is_of_known_sizes),)
