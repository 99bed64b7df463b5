"""Fourier transforms as products with matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import ONNX, TFLITE, Attributes, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor

# Numbers up to which a transform is one matrix.
_LARGEST_MATRIX = 64
# Primes up to which it may be one.
_LARGEST_PRIME = 1024

Pair = tuple[Tensor, Tensor]


def _factors(count: int) -> list[int]:
    """Sizes of the transforms of which one consists: factors of the number of elements.

    Example:

    >>> _factors(1024), _factors(400), _factors(127)
    ([32, 32], [20, 20], [127])
    """
    if count <= _LARGEST_MATRIX:
        return [count]
    first = max(each for each in range(1, math.isqrt(count) + 1) if count % each == 0)
    return [count] if first == 1 else [*_factors(first), *_factors(count // first)]


def _waves(angles: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of angles in turns, and the sign of the sines."""
    angles = 2 * np.pi * (angles % 1)
    return np.cos(angles).astype("float32"), (sign * np.sin(angles)).astype("float32")


def _multiplied(x: Pair, waves: Sequence[np.ndarray], multiply: Callable[[Tensor, np.ndarray], Tensor]) -> Pair:
    """A product of complex numbers with waves."""
    (real, imaginary), (cosines, sines) = x, waves
    return (
        multiply(real, cosines) - multiply(imaginary, sines),
        multiply(real, sines) + multiply(imaginary, cosines),
    )


def _transformed(x: Pair, sign: int, factors: Sequence[int]) -> Pair:
    """The transform along the last axis.

    It is one product with a matrix, or of two factors: transforms of as many elements as the first one says, which are a
    fixed distance apart; turns of the results; and transforms of these.

    Args:
        x: real and imaginary part.
        sign: of the exponent.
        factors: of the size of the axis.

    Reference: Cooley and Tukey, "An Algorithm for the Machine Calculation of Complex Fourier Series", Mathematics of
    Computation 19(90), 1965.
    """
    count, (first, *others) = math.prod(factors), factors
    if not others:
        angles = np.outer(np.arange(count), np.arange(count)) % count / count
        return _multiplied(x, _waves(angles, sign), tf.matmul)
    rest = count // first
    shape = tf.shape(x[0])

    def split(part: Tensor) -> Tensor:
        return tf.linalg.matrix_transpose(tf.reshape(part, tf.concat([shape[:-1], [first, rest]], 0)))

    def joined(part: Tensor) -> Tensor:
        return _like(tf.reshape(tf.linalg.matrix_transpose(part), shape), x[0])

    found = _transformed((split(x[0]), split(x[1])), sign, [first])
    turns = _waves(np.outer(np.arange(rest), np.arange(first)) % count / count, sign)
    real, imaginary = map(tf.linalg.matrix_transpose, _multiplied(found, turns, tf.multiply))
    real, imaginary = _transformed((real, imaginary), sign, others)
    return joined(real), joined(imaginary)


def _like(x: tf.Tensor, other: Tensor) -> Tensor:
    x.set_shape(other.shape)
    return x


def _along(x: Pair, axis: int, sign: int) -> Pair:
    """The transform along the last axis, -1, or along that before, -2; divided by its size if the sign is positive."""
    if axis == -2:
        real, imaginary = _along(_transposed(x), -1, sign)
        return _transposed((real, imaginary))
    count = x[0].shape[-1]
    real, imaginary = _transformed(x, sign, _factors(count))
    return (real / count, imaginary / count) if sign == 1 else (real, imaginary)


def _transposed(x: Pair) -> Pair:
    return tf.linalg.matrix_transpose(x[0]), tf.linalg.matrix_transpose(x[1])


def _of_complex(z: Tensor, axes: int, sign: int) -> Tensor:
    """The transform along one or two last axes."""
    x = tf.math.real(z), tf.math.imag(z)
    for axis in range(-axes, 0):
        x = _along(x, axis, sign)
    return tf.complex(*x)


def fourier_transform(z: Tensor) -> Tensor:
    return _of_complex(z, 1, -1)


def inverse_fourier_transform(z: Tensor) -> Tensor:
    return _of_complex(z, 1, 1)


def fourier_transform_of_planes(z: Tensor) -> Tensor:
    return _of_complex(z, 2, -1)


def inverse_fourier_transform_of_planes(z: Tensor) -> Tensor:
    return _of_complex(z, 2, 1)


def fourier_transform_of_reals(x: Tensor, length: Tensor) -> Tensor:
    """Along the last axis the frequencies up to the middle one; the others are their conjugates."""
    sizes = tf.get_static_value(length).tolist()
    x = _fitted(x, sizes)
    real, imaginary = _along((x, tf.zeros_like(x)), -1, -1)
    middle = sizes[-1] // 2 + 1
    found = real[..., :middle], imaginary[..., :middle]
    for axis in range(-len(sizes), -1):
        found = _along(found, axis, -1)
    return tf.complex(*found)


def inverse_fourier_transform_to_reals(z: Tensor, length: Tensor) -> Tensor:
    sizes = tf.get_static_value(length).tolist()
    kept = [*sizes[:-1], sizes[-1] // 2 + 1]
    found = _fitted(tf.math.real(z), kept), _fitted(tf.math.imag(z), kept)
    for axis in range(-len(sizes), -1):
        found = _along(found, axis, 1)
    return _along(_with_conjugates(found, sizes[-1]), -1, 1)[0]


def _with_conjugates(x: Pair, size: int) -> Pair:
    """So many frequencies of real numbers, of those up to the middle one.

    The imaginary parts of the first one and of a middle one are not read.
    """
    real, imaginary = x
    middle = size // 2 + 1
    is_read = np.ones(middle, "float32")
    is_read[0] = 0
    if size % 2 == 0:
        is_read[-1] = 0
    imaginary = imaginary * is_read
    real_behind, imaginary_behind = (tf.reverse(each[..., 1 : size - middle + 1], [-1]) for each in (real, imaginary))
    return tf.concat([real, real_behind], -1), tf.concat([imaginary, -imaginary_behind], -1)


def _fitted(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """As many elements of the last axes, with zeros behind where there are fewer."""
    missing = [[0, max(0, size - given)] for size, given in zip(sizes, x.shape[-len(sizes) :], strict=True)]
    x = tf.pad(x, [*[[0, 0]] * (x.shape.rank - len(sizes)), *missing])
    return x[(..., *(slice(size) for size in sizes))]


def _is_of_known_size(node: Node) -> bool:
    return _is_of_sizes(node, 1)


def _is_of_known_sizes(node: Node) -> bool:
    return _is_of_sizes(node, 2)


def _is_of_sizes(node: Node, axes: int) -> bool:
    """Whether the last axes have known sizes without large primes, and numbers of single precision."""
    shape = node.part.spec(node.inputs[0]).shape
    return (
        node.dtype() in (tf.complex64, tf.float32)
        and shape.rank is not None
        and None not in shape[-axes:]
        and all(max(_factors(each)) <= _LARGEST_PRIME for each in shape[-axes:])
    )


def _is_of_known_length(node: Node) -> bool:
    """Whether the sizes of the last axes and the lengths are known, and the lengths have no large primes."""
    shape, lengths = node.part.spec(node.inputs[0]).shape, node.value(1)
    return (
        node.dtype() in (tf.complex64, tf.float32)
        and lengths is not None
        and all(max(_factors(each)) <= _LARGEST_PRIME for each in lengths.tolist())
        and shape.rank is not None
        and None not in shape[-lengths.size :]
    )


def _is_of_no_power_of_two(node: Node) -> bool:
    """Whether LiteRT has no operator of its own."""
    length = node.value(1)
    return _is_of_known_length(node) and length is not None and int(length[0]).bit_count() != 1


def _length_of_last(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return sum(_factors(inputs[0].shape[-1]))


def _length_of_planes(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return sum(sum(_factors(each)) for each in inputs[0].shape[-2:])


def _length_given(attributes: Attributes, inputs: Sequence[tf.Tensor], result: Tensor) -> float:
    return sum(sum(_factors(int(each))) for each in inputs[1])


def _transform(name: str, function: Callable[[Tensor], Tensor]) -> Operation:
    when, length = (
        (_is_of_known_sizes, _length_of_planes) if name.endswith("2D") else (_is_of_known_size, _length_of_last)
    )
    return Operation(name, in_both(Decomposed(function, when=when)), rounds_operands=True, sum_length=length)


_TO_REALS = Decomposed(inverse_fourier_transform_to_reals, when=_is_of_known_length)
_OF_REAL_PLANES = Decomposed(fourier_transform_of_reals, when=_is_of_known_length)
_OF_REALS = {
    TFLITE: Decomposed(fourier_transform_of_reals, when=_is_of_no_power_of_two),
    ONNX: Decomposed(fourier_transform_of_reals, when=_is_of_known_length),
}

OPERATIONS = (
    _transform("FFT", fourier_transform),
    _transform("FFT2D", fourier_transform_of_planes),
    _transform("IFFT", inverse_fourier_transform),
    _transform("IFFT2D", inverse_fourier_transform_of_planes),
    *(
        Operation(name, in_both(_TO_REALS), rounds_operands=True, sum_length=_length_given)
        for name in ("IRFFT", "IRFFT2D")
    ),
    Operation("RFFT", _OF_REALS, rounds_operands=True, sum_length=_length_given),
    Operation("RFFT2D", in_both(_OF_REAL_PLANES), rounds_operands=True, sum_length=_length_given),
)
