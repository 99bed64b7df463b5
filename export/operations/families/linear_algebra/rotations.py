"""Singular values and eigenvalues by Jacobi's rotations.

Pairs of columns that share none are rotated at once, and the next pairs are those of a tournament in which each meets each.
After a sweep, one such tournament, every column is in its place again. Sweeps end when no pair is left to rotate, which
takes six to ten; then singular values and eigenvalues are as accurate as LAPACK's, a few units in the last place of the
largest one. The sign of a vector, and a basis of those that share a value, are as arbitrary as LAPACK's, and differ from
them: a file equals its model where these do not matter, as in a pseudoinverse, and is refused by its comparison elsewhere.

References: Brent and Luk, "The Solution of Singular-Value and Symmetric Eigenvalue Problems on Multiprocessor Arrays", SIAM
J. Sci. Stat. Comput. 6(1), 1985; Demmel and Veselic, "Jacobi's Method is More Accurate than QR", SIAM J. Matrix Anal.
Appl. 13(4), 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from keras_transformer.export.operations.families.linear_algebra.matrices import (
    factorization,
    identity,
    in_batch_of,
    in_one_batch,
    is_of_known_sizes,
)
from keras_transformer.export.operations.families.linear_algebra.reflections import reflected
from keras_transformer.export.operations.operation import Operation, Refused, in_both
from keras_transformer.utils.types import Tensor

_MOST_SWEEPS = 15
_EPSILON = 2.0**-23
_LEAST_SCALE = 1e-12


def singular_values(x: Tensor, *, compute_uv: bool, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The singular values, the largest first, and the left and right vectors, or empty tensors in place of these."""
    matrix = in_one_batch(x)
    scale = _scale(matrix)
    matrix = matrix / scale
    is_wide = x.shape[-2] < x.shape[-1]
    values, columns, right = _orthogonal_columns(tf.linalg.matrix_transpose(matrix) if is_wide else matrix)
    values = values * scale[:, 0]
    if not compute_uv:
        return in_batch_of(x, values), tf.zeros([0]), tf.zeros([0])
    count = values.shape[1]
    q, r = reflected(columns, full_matrices)
    # Columns that are orthogonal already are mirrored at most: r is diagonal. Those of zeros are completed to a basis.
    signs = tf.where(tf.reduce_sum(r[:, :count] * identity(count), 2) < 0.0, -1.0, 1.0)
    left = tf.concat([q[:, :, :count] * signs[:, tf.newaxis], q[:, :, count:]], 2)
    left, right = (right, left) if is_wide else (left, right)
    return in_batch_of(x, values), in_batch_of(x, left), in_batch_of(x, right)


def eigenvalues(x: Tensor, *, compute_v: bool) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a symmetric matrix, the smallest first, and the vectors, or an empty tensor in place of these.

    The upper triangle is not read.
    """
    matrix = in_one_batch(x)
    count = x.shape[-1]
    positions = tf.range(count)
    is_lower = positions[:, tf.newaxis] >= positions
    matrix = tf.where(is_lower, matrix, tf.linalg.matrix_transpose(matrix))
    scale = _scale(matrix)
    diagonal, vectors = _diagonalized(matrix / scale)
    diagonal = diagonal * scale[:, 0]
    values, order = tf.math.top_k(-diagonal, count)
    if not compute_v:
        return in_batch_of(x, -values), tf.zeros([0])
    vectors = tf.gather(vectors, order, batch_dims=1)
    return in_batch_of(x, -values), in_batch_of(x, tf.linalg.matrix_transpose(vectors))


def _scale(matrix: Tensor) -> Tensor:
    """What each matrix `(B, m, n)` is divided by: its largest element where the squares of its elements are no numbers."""
    largest = tf.reduce_max(tf.abs(matrix), [1, 2], keepdims=True)
    has_squares = tf.logical_and(largest > _LEAST_SCALE, largest < 1.0 / _LEAST_SCALE)
    return tf.where(tf.logical_or(has_squares, tf.equal(largest, 0.0)), 1.0, largest)


def _orthogonal_columns(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The lengths of the columns of `(B, m, n)` times an orthogonal matrix, these columns, and that matrix.

    The columns are orthogonal, and the longest is the first.
    """
    rows, count = matrix.shape[1:]

    def rotated(pairs: Tensor) -> tuple[Tensor, Tensor]:
        first, second = tf.split(pairs[:, :, :rows], 2, 1)
        squares = tf.reduce_sum(first * first, 2), tf.reduce_sum(second * second, 2)
        product = tf.reduce_sum(first * second, 2)
        cosine = tf.math.divide_no_nan(tf.abs(product), tf.sqrt(squares[0]) * tf.sqrt(squares[1]))
        return _rotated(pairs, *_rotation(*squares, product)), tf.reduce_max(cosine)

    found = _swept(_with_basis(tf.linalg.matrix_transpose(matrix)), rotated, _EPSILON * math.sqrt(rows))[:, :count]
    lengths = tf.sqrt(tf.reduce_sum(tf.square(found[:, :, :rows]), 2))
    values, order = tf.math.top_k(lengths, count)
    columns = tf.linalg.matrix_transpose(tf.gather(found, order, batch_dims=1))
    return values, columns[:, :rows], columns[:, rows : rows + count]


def _diagonalized(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonal `(B, n)` of a symmetric matrix in the basis of its eigenvectors, and these as rows `(B, n, n)`."""
    count = matrix.shape[1]
    even = count + count % 2
    half = even // 2
    length = tf.sqrt(tf.reduce_max(tf.reduce_sum(tf.square(matrix), [1, 2])))

    def rotated(pairs: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (
            tf.reduce_sum(each * identity(half), 2) for each in (pairs[:, :half, :half], pairs[:, half:, half:even])
        )
        product = tf.reduce_sum(pairs[:, :half, half:even] * identity(half), 2)
        rotation = _rotation(first, second, product)
        pairs = _rotated(pairs, *rotation)
        both = _rotated(tf.linalg.matrix_transpose(pairs[:, :, :even]), *rotation)
        return tf.concat([both, pairs[:, :, even:]], 2), tf.math.divide_no_nan(tf.reduce_max(tf.abs(product)), length)

    padded = tf.pad(matrix, [[0, 0], [0, 0], [0, even - count]])
    found = _swept(_with_basis(padded), rotated, _EPSILON)[:, :count]
    return tf.reduce_sum(found[:, :, :count] * identity(count), 2), found[:, :, even : even + count]


def _with_basis(rows: Tensor) -> Tensor:
    """An even number of rows `(B, n, m)`, the last one of zeros if need be, and the identity beside them.

    It becomes the product of all rotations.
    """
    count = rows.shape[1]
    rows = tf.pad(rows, [[0, 0], [0, count % 2], [0, 0]])
    return tf.concat([rows, identity(count + count % 2) + tf.zeros_like(rows[:, :, :1])], 2)


def _swept(pairs: Tensor, rotated: Callable[[Tensor], tuple[tf.Tensor, Tensor]], least: float) -> Tensor:
    """Rows `(B, 2h, m)` after sweeps in which each is rotated with each.

    Args:
        pairs: rows of which the first and the `h`-th are the first pair.
        rotated: rotates all pairs; returns the next ones, and how far the worst one was from being orthogonal.
        least: how far is not far.
    """
    shape = pairs.shape
    count = shape[1] - 1

    def is_left(number: Tensor, worst: Tensor, pairs: Tensor) -> Tensor:
        is_within_sweep = tf.not_equal(number % count, 0)
        return tf.logical_and(number < _MOST_SWEEPS * count, tf.logical_or(is_within_sweep, worst > least))

    def step(number: Tensor, worst: Tensor, pairs: tf.Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pairs, distance = rotated(pairs)
        worst = tf.maximum(distance, tf.where(tf.equal(number % count, 0), 0.0, worst))
        pairs.set_shape(shape)
        return number + 1, worst, pairs

    return tf.while_loop(is_left, step, (tf.constant(0), tf.constant(1.0), pairs))[2]


def _next_pairs(half: int) -> list[int]:
    """The order in which the next pairs of a tournament stand: all but the first move on by one place."""
    top, bottom = list(range(half)), list(range(half, 2 * half))
    ring = top[1:] + bottom[::-1]
    ring = ring[-1:] + ring[:-1]
    return top[:1] + ring[: half - 1] + ring[half - 1 :][::-1]


def _rotation(first: Tensor, second: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """The sine of the smaller angle that makes pairs orthogonal, and the tangent of its half.

    Args:
        first: squares of the first rows, `(B, h)`, or elements of the diagonal.
        second: those of the second rows.
        product: products of the first with the second.
    """
    is_orthogonal = tf.equal(product, 0.0)
    ratio = (second - first) / tf.where(is_orthogonal, 1.0, 2.0 * product)
    size = tf.abs(ratio)
    tangent = tf.where(ratio < 0.0, -1.0, 1.0) / (size + tf.sqrt(1.0 + size * size))
    tangent = tf.where(is_orthogonal, 0.0, tangent)
    cosine = 1.0 / tf.sqrt(1.0 + tangent * tangent)
    sine = cosine * tangent
    return sine, sine / (1.0 + cosine)


def _rotated(pairs: Tensor, sine: Tensor, tangent: Tensor) -> Tensor:
    """Pairs, rotated by an angle of a sine and of a tangent of its half, in the order of the next pairs.

    What is added to a row is as small as its angle, and so is what is rounded.
    """
    first, second = tf.split(pairs, 2, 1)
    sine, tangent = sine[:, :, tf.newaxis], tangent[:, :, tf.newaxis]
    both = [first - sine * (second + tangent * first), second + sine * (first - tangent * second)]
    return tf.gather(tf.concat(both, 1), _next_pairs(pairs.shape[1] // 2), axis=1)


_NOT_SYMMETRIC = Refused(
    "the eigenvalues of a matrix that is not symmetric are complex, and found by iterations that no format has",
    "use keras.ops.eigh of a symmetric matrix, or keras.ops.svd",
)

OPERATIONS = (
    Operation("Eig", in_both(_NOT_SYMMETRIC)),
    factorization("SelfAdjointEigV2", eigenvalues, "compute_v", when=is_of_known_sizes),
    factorization("Svd", singular_values, "compute_uv", "full_matrices", when=is_of_known_sizes),
)
