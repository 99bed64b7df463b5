"""Diagonals of matrices: read and written."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor


def diagonal(x: Tensor, k: Tensor, padding: Tensor) -> Tensor:
    """One diagonal of matrices, by lookup in their rows one behind the other."""
    offset = _offset(k)
    shape = tf.shape(x)
    rows, columns = shape[-2], shape[-1]
    flat = tf.reshape(x, tf.concat([shape[:-2], [rows * columns]], 0))
    length = tf.minimum(rows + min(offset, 0), columns - max(offset, 0))
    first = offset if offset >= 0 else -offset * columns
    return tf.gather(flat, first + tf.range(length) * (columns + 1), axis=-1)


def diagonal_matrix(values: Tensor, k: Tensor, rows: Tensor, columns: Tensor, padding: Tensor) -> Tensor:
    """Matrices that have numbers on one diagonal, and the same number elsewhere; square ones if no size is given."""
    offset, length = _offset(k), tf.shape(values)[-1]
    is_square = _is_open(rows) and _is_open(columns)
    rows = length + (abs(offset) if is_square else max(-offset, 0)) if _is_open(rows) else rows
    columns = length + (abs(offset) if is_square else max(offset, 0)) if _is_open(columns) else columns
    return _on_diagonal(values, offset, rows, columns, padding)


def with_diagonal(x: Tensor, values: Tensor, k: Tensor) -> Tensor:
    return _on_diagonal(values, _offset(k), tf.shape(x)[-2], tf.shape(x)[-1], x)


def band_part(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """What is outside the band is 0 by choice: a product with 0 is NaN for infinities and NaN, and -0 below 0."""
    below = tf.range(size(x, x.shape.rank - 2))[:, None] - tf.range(size(x, x.shape.rank - 1))
    lower, upper = tf.cast(lower, tf.int32), tf.cast(upper, tf.int32)
    is_low = tf.logical_or(lower < 0, below <= lower)
    is_high = tf.logical_or(upper < 0, -below <= upper)
    return tf.where(tf.logical_and(is_low, is_high), x, tf.zeros((), x.dtype))


def _on_diagonal(values: Tensor, offset: int, rows: Tensor, columns: Tensor, others: Tensor) -> Tensor:
    row, column = tf.range(rows), tf.range(columns)
    is_diagonal = tf.equal(tf.expand_dims(column, 0) - tf.expand_dims(row, 1), offset)
    at = tf.minimum(tf.maximum(row - max(-offset, 0), 0), tf.shape(values)[-1] - 1)
    return tf.where(is_diagonal, tf.expand_dims(tf.gather(values, at, axis=-1), -1), others)


def _offset(k: Tensor) -> int:
    return int(tf.get_static_value(k).reshape(-1)[0])


def _is_open(size: Tensor) -> bool:
    """Whether a size follows from the length of the diagonal."""
    return int(tf.get_static_value(size)) == -1


def _is_one_diagonal(node: Node) -> bool:
    k = node.value(2 if node.op == "MatrixSetDiagV3" else 1)
    return k is not None and bool((k == k.reshape(-1)[0]).all())


def _is_beside_main(node: Node) -> bool:
    k = node.value(2 if node.op == "MatrixSetDiagV3" else 1)
    return _is_one_diagonal(node) and k is not None and bool(k.any())


def _has_known_sizes(node: Node) -> bool:
    return _is_one_diagonal(node) and node.value(2) is not None and node.value(3) is not None


def _is_no_square_of_zeros(node: Node) -> bool:
    """Whether it is not what LiteRT has: a square matrix of zeros with numbers on the main diagonal."""
    rows, columns, padding = (node.value(position) for position in (2, 3, 4))
    is_square = rows is not None and columns is not None and rows == columns == -1
    is_zero = padding is not None and not padding.any()
    return _has_known_sizes(node) and (_is_beside_main(node) or not is_square or not is_zero)


OPERATIONS = (
    Operation("MatrixBandPart", {ONNX: Decomposed(band_part, when=is_float)}),
    Operation(
        "MatrixDiagV3",
        {
            TFLITE: Decomposed(diagonal_matrix, when=_is_no_square_of_zeros),
            ONNX: Decomposed(diagonal_matrix, when=_has_known_sizes),
        },
    ),
    Operation("MatrixDiagPartV3", {TFLITE: Decomposed(diagonal, when=_is_one_diagonal)}),
    Operation(
        "MatrixSetDiagV3",
        {
            TFLITE: Decomposed(with_diagonal, when=_is_beside_main),
            ONNX: Decomposed(with_diagonal, when=_is_one_diagonal),
        },
    ),
)
