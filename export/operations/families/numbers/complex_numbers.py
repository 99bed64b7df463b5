"""Complex numbers as pairs of floats.

An operation of complex numbers becomes operations of their real and imaginary parts, and a `Complex` of the results. Where
a part of a `Complex` is read, what it was made of is read instead. So no complex number is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor

_COMPLEX = (tf.complex64, tf.complex128)


def _is_complex(node: Node) -> bool:
    return (node.attribute("T") or node.attribute("Tparams")) in _COMPLEX


def _is_cast_to_complex(node: Node) -> bool:
    return node.attribute("DstT") in _COMPLEX and node.attribute("SrcT") not in _COMPLEX


def _is_complex_constant(node: Node) -> bool:
    return node.attribute("dtype") in _COMPLEX


def _is_of_parts(node: Node) -> bool:
    return bool(_parts_of_operand(node))


def _parts_of_operand(node: Node) -> Sequence[str]:
    """What the complex operand of a node was made of, if that is known."""
    producer = node.producer(0)
    while producer is not None and producer.op == "Identity":
        producer = producer.producer(0)
    return producer.inputs if producer is not None and producer.op == "Complex" else []


def real_part(real: Tensor, imaginary: Tensor) -> Tensor:
    return tf.identity(real)


def imaginary_part(real: Tensor, imaginary: Tensor) -> Tensor:
    return tf.identity(imaginary)


def complex_of_real(x: Tensor, *, DstT: tf.DType) -> Tensor:
    x = tf.cast(x, DstT.real_dtype)
    return tf.complex(x, tf.zeros_like(x))


def complex_constant(*, value: object) -> Tensor:
    array = tf.make_ndarray(value)
    return tf.complex(tf.constant(array.real.copy()), tf.constant(array.imag.copy()))


def product(x: Tensor, y: Tensor) -> Tensor:
    (a, b), (c, d) = _parts(x), _parts(y)
    return tf.complex(a * c - b * d, a * d + b * c)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    (a, b), (c, d) = _parts(x), _parts(y)
    square = c * c + d * d
    return tf.complex((a * c + b * d) / square, (b * c - a * d) / square)


def square(x: Tensor) -> Tensor:
    return product(x, x)


def exponential(x: Tensor) -> Tensor:
    real, imaginary = _parts(x)
    size = tf.exp(real)
    return tf.complex(size * tf.cos(imaginary), size * tf.sin(imaginary))


def matrix_product(x: Tensor, y: Tensor, *, adj_x: bool, adj_y: bool) -> Tensor:
    (a, b), (c, d) = _adjoint(x, adj_x), _adjoint(y, adj_y)
    return tf.complex(tf.matmul(a, c) - tf.matmul(b, d), tf.matmul(a, d) + tf.matmul(b, c))


def conjugate(x: Tensor) -> Tensor:
    real, imaginary = _parts(x)
    return tf.complex(real, -imaginary)


def magnitude(x: Tensor) -> Tensor:
    """The length of a pair, whose square may be too large or too small for float32."""
    real, imaginary = map(tf.abs, _parts(x))
    larger = tf.maximum(real, imaginary)
    ratio = tf.math.divide_no_nan(tf.minimum(real, imaginary), larger)
    return larger * tf.sqrt(1.0 + ratio * ratio)


def angle(x: Tensor) -> Tensor:
    real, imaginary = _parts(x)
    return tf.atan2(imaginary, real)


def shape(x: Tensor, *, out_type: tf.DType) -> Tensor:
    return tf.shape(tf.math.real(x), out_type)


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    return tf.math.real(x), tf.math.imag(x)


def _adjoint(x: Tensor, is_adjoint: bool) -> tuple[Tensor, Tensor]:
    real, imaginary = _parts(x)
    if not is_adjoint:
        return real, imaginary
    return tf.linalg.matrix_transpose(real), -tf.linalg.matrix_transpose(imaginary)


def _part_by_part(function: Callable[..., Tensor], *attributes: str) -> Decomposed:
    """An operation that moves, selects or adds numbers is applied to the real parts, and to the imaginary ones."""

    def of_parts(*operands: Tensor, **options: object) -> Tensor:
        found = (
            function(*(part(each) if each.dtype.is_complex else each for each in operands), **options)
            for part in (tf.math.real, tf.math.imag)
        )
        return tf.complex(*found)

    of_parts.__name__ = "part_by_part"
    return Decomposed(of_parts, attributes, _is_complex)


def _concatenated(*operands: Tensor) -> Tensor:
    *parts, axis = operands
    return tf.concat(parts, axis)


def _stacked(*parts: Tensor, axis: int) -> Tensor:
    return tf.stack(parts, axis)


def _squeezed(x: Tensor, *, squeeze_dims: Sequence[int]) -> Tensor:
    return tf.squeeze(x, list(squeeze_dims or []) or None)


def _gathered(x: Tensor, indices: Tensor, axis: Tensor, *, batch_dims: int) -> Tensor:
    return tf.gather(x, indices, axis=axis, batch_dims=batch_dims)


def _summed(x: Tensor, axis: Tensor, *, keep_dims: bool) -> Tensor:
    return tf.reduce_sum(x, axis, keep_dims)


def _averaged(x: Tensor, axis: Tensor, *, keep_dims: bool) -> Tensor:
    return tf.reduce_mean(x, axis, keep_dims)


_SLICED = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
# What becomes of operations that take other numbers too, and have entries of their own for these.
_OF_COMPLEX = {
    "AddV2": _part_by_part(tf.add),
    "BatchMatMulV2": Decomposed(matrix_product, ("adj_x", "adj_y"), _is_complex),
    "BroadcastTo": _part_by_part(tf.broadcast_to),
    "Cast": Decomposed(complex_of_real, ("DstT",), _is_cast_to_complex),
    "ConcatV2": _part_by_part(_concatenated),
    "Conj": Decomposed(conjugate, when=_is_complex),
    "Const": Decomposed(complex_constant, ("value",), _is_complex_constant),
    "Exp": Decomposed(exponential, when=_is_complex),
    "ExpandDims": _part_by_part(tf.expand_dims),
    "GatherV2": _part_by_part(_gathered, "batch_dims"),
    "Mean": _part_by_part(_averaged, "keep_dims"),
    "Mul": Decomposed(product, when=_is_complex),
    "Neg": _part_by_part(tf.negative),
    "Pack": _part_by_part(_stacked, "axis"),
    "Pad": _part_by_part(tf.pad),
    "RealDiv": Decomposed(quotient, when=_is_complex),
    "Reshape": _part_by_part(tf.reshape),
    "ReverseV2": _part_by_part(tf.reverse),
    "Roll": _part_by_part(tf.roll),
    "SelectV2": _part_by_part(tf.where),
    "Shape": Decomposed(shape, ("out_type",), _is_complex),
    "Slice": _part_by_part(tf.slice),
    "Square": Decomposed(square, when=_is_complex),
    "Squeeze": _part_by_part(_squeezed, "squeeze_dims"),
    "StridedSlice": _part_by_part(tf.strided_slice, *_SLICED),
    "Sub": _part_by_part(tf.subtract),
    "Sum": _part_by_part(_summed, "keep_dims"),
    "Tile": _part_by_part(tf.tile),
    "Transpose": _part_by_part(tf.transpose),
    "ZerosLike": _part_by_part(tf.zeros_like),
}
OF_COMPLEX = {name: in_both(lowering) for name, lowering in _OF_COMPLEX.items()}
_REAL = Decomposed(real_part, when=_is_of_parts, operands=_parts_of_operand)
_IMAGINARY = Decomposed(imaginary_part, when=_is_of_parts, operands=_parts_of_operand)

OPERATIONS = (
    Operation("Angle", in_both(Decomposed(angle)), rounds=True),
    Operation("ComplexAbs", in_both(Decomposed(magnitude)), rounds=True),
    Operation("Imag", in_both(_IMAGINARY)),
    Operation("Real", in_both(_REAL)),
)
