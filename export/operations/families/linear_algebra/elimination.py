"""Gauss's and Cholesky's eliminations, and what follows from them: determinants, inverses, and solutions of equations.

Reference: Golub and Van Loan, "Matrix Computations", 4th edition, 2013, algorithms 3.4.1 and 4.2.2.
"""

from __future__ import annotations

import math

import tensorflow as tf

from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.families.linear_algebra.matrices import (
    factorization,
    identity,
    in_batch_of,
    in_one_batch,
    repeated,
)
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation, in_both
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor


def cholesky(x: Tensor) -> Tensor:
    """The lower factor, column by column, each of what is left of the matrix; NaN where that is not positive definite.

    The upper triangle is not read.
    """
    left = in_one_batch(x)
    positions = tf.range(size(left, 1))

    def column(number: Tensor, left: Tensor, factor: Tensor, is_definite: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given = tf.gather(left, number, axis=2)
        pivot = tf.gather(given, number, axis=1)[:, tf.newaxis]
        is_definite = tf.logical_and(is_definite, pivot > 0.0)
        scaled = given / tf.sqrt(tf.where(is_definite, pivot, 1.0))
        new = tf.where(positions >= number, scaled, 0.0)[:, :, tf.newaxis]
        left = left - new * tf.linalg.matrix_transpose(new)
        return left, tf.where(tf.equal(positions, number), new, factor), is_definite

    is_definite = tf.ones_like(left[:, 0, :1], tf.bool)
    _, factor, is_definite = repeated(size(left, 1), column, left, tf.zeros_like(left), is_definite)
    is_failed = tf.logical_not(is_definite)[:, :, tf.newaxis]
    is_lower = positions[:, tf.newaxis] >= positions
    return in_batch_of(x, tf.where(tf.logical_and(is_failed, is_lower), math.nan, factor))


def triangular_solution(matrix: Tensor, right: Tensor, *, lower: bool, adjoint: bool) -> Tensor:
    """The unknowns one by one; the other triangle is not read."""
    if matrix.shape[:-2] != right.shape[:-2]:
        matrix, right = matrix + tf.zeros_like(right[..., :1, :1]), right + tf.zeros_like(matrix[..., :1, :1])
    matrix = tf.linalg.matrix_transpose(matrix) if adjoint else matrix
    return in_batch_of(right, _substituted(in_one_batch(matrix), in_one_batch(right), lower != adjoint))


def _substituted(matrix: Tensor, right: Tensor, is_lower: bool, is_unit: bool = False) -> Tensor:
    """The solution of triangular equations `(B, n, n)`, whose first unknown is the last one of an upper matrix."""
    count = size(matrix, 1)
    positions = tf.range(count)
    rows = positions[:, tf.newaxis]
    matrix = tf.where(rows >= positions if is_lower else rows <= positions, matrix, 0.0)

    def unknown(number: Tensor, found: Tensor) -> tuple[Tensor]:
        number = number if is_lower else count - 1 - number
        row = tf.gather(matrix, number, axis=1)
        # What is not found yet is 0.
        rest = tf.gather(right, number, axis=1) - tf.matmul(row[:, tf.newaxis], found)[:, 0]
        rest = rest if is_unit else rest / tf.gather(row, number, axis=1)[:, tf.newaxis]
        return (tf.where(tf.equal(rows, number), rest[:, tf.newaxis], found),)

    return repeated(count, unknown, tf.zeros_like(right))[0]


def _factors(x: Tensor) -> list[Tensor]:
    """Both triangular factors in one matrix `(B, n, n)`, the order of its rows `(B, n)`, and the sign of that `(B, 1)`.

    The pivot of each column is its largest element.
    """
    matrix = in_one_batch(x)
    positions = tf.range(size(matrix, 1))
    order = tf.zeros_like(matrix[:, :, 0], tf.int32) + positions

    def column(number: Tensor, matrix: Tensor, order: Tensor, sign: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = tf.where(positions >= number, tf.abs(tf.gather(matrix, number, axis=2)), -1.0)
        pivot = tf.argmax(sizes, 1, tf.int32)[:, tf.newaxis]
        swapped = tf.where(tf.equal(positions, number), pivot, tf.where(tf.equal(positions, pivot), number, positions))
        matrix, order = (tf.gather(each, swapped, batch_dims=1) for each in (matrix, order))
        sign = tf.where(tf.equal(pivot, number), sign, -sign)
        return _eliminated(matrix, number), order, sign

    return repeated(size(matrix, 1), column, matrix, order, tf.ones_like(matrix[:, 0, :1]))


def _eliminated(matrix: Tensor, number: Tensor) -> Tensor:
    """A matrix without what one row explains of those below it; their factors stand in the column of the same number."""
    positions = tf.range(size(matrix, 1))
    row, column = tf.gather(matrix, number, axis=1), tf.gather(matrix, number, axis=2)
    # Of a column of zeros nothing is left to eliminate.
    factors = tf.math.divide_no_nan(column, tf.gather(row, number, axis=1)[:, tf.newaxis])
    factors = tf.where(positions > number, factors, 0.0)[:, :, tf.newaxis]
    rest = tf.where(positions > number, row, 0.0)[:, tf.newaxis]
    is_factor = tf.logical_and(tf.equal(positions, number), positions[:, tf.newaxis] > number)
    return tf.where(is_factor, factors, matrix - factors * rest)


def lu(x: Tensor, *, output_idx_type: tf.DType) -> tuple[Tensor, Tensor]:
    matrix, order, _ = _factors(x)
    order = tf.reshape(order, tf.shape(x)[:-1])
    return in_batch_of(x, matrix), tf.cast(order, output_idx_type)


def inverted_permutation(x: Tensor) -> Tensor:
    return tf.scatter_nd(x[:, tf.newaxis], tf.range(tf.size(x, x.dtype)), tf.shape(x, x.dtype))


def solution(matrix: Tensor, right: Tensor, *, adjoint: bool) -> Tensor:
    matrix = tf.linalg.matrix_transpose(matrix) if adjoint else matrix
    factors, order, _ = _factors(matrix)
    ordered = tf.gather(in_one_batch(right), order, batch_dims=1)
    found = _substituted(factors, ordered, is_lower=True, is_unit=True)
    return in_batch_of(right, _substituted(factors, found, is_lower=False))


def inverse(matrix: Tensor, *, adjoint: bool) -> Tensor:
    right = tf.zeros_like(matrix) + identity(tf.shape(matrix)[-1])
    return solution(matrix, right, adjoint=adjoint)


def _diagonal_and_sign(x: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonal of the upper factor `(B, n)`, and the sign of the order of the rows `(B,)`."""
    factors, _, sign = _factors(x)
    return tf.reduce_sum(tf.where(identity(size(factors, 1)) > 0.0, factors, 0.0), 2), sign[:, 0]


def determinant(x: Tensor) -> Tensor:
    diagonal, sign = _diagonal_and_sign(x)
    return in_batch_of(x, tf.reduce_prod(diagonal, 1) * sign)


def log_determinant(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sign, and the logarithm of the absolute value."""
    diagonal, sign = _diagonal_and_sign(x)
    sign = sign * tf.reduce_prod(tf.sign(diagonal), 1)
    return in_batch_of(x, sign), in_batch_of(x, tf.reduce_sum(tf.math.log(tf.abs(diagonal)), 1))


OPERATIONS = (
    factorization("Cholesky", cholesky),
    Operation("InvertPermutation", in_both(Decomposed(inverted_permutation))),
    factorization("LogMatrixDeterminant", log_determinant),
    factorization("Lu", lu, "output_idx_type"),
    factorization("MatrixDeterminant", determinant, lowerings={TFLITE: Decomposed(determinant, when=is_float32)}),
    factorization("MatrixInverse", inverse, "adjoint"),
    factorization("MatrixSolve", solution, "adjoint"),
    factorization("MatrixTriangularSolve", triangular_solution, "lower", "adjoint"),
)
