"""Differences and quotients of a constant and of what was transposed, whose operands the converter of TFLite swaps.

It moves transpositions behind functions of single elements, and puts the constant second there, whatever the function is.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float, is_integer
from keras_transformer.export.operations.operation import Decomposed
from keras_transformer.utils.types import Tensor

# What a transposition is moved behind, and what may end with one.
_OF_ELEMENTS = {
    *("Abs", "Add", "AddV2", "BiasAdd", "Cast", "Ceil", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Identity"),
    *("LeakyRelu", "Log", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv", "Reciprocal", "Relu", "Relu6", "Round"),
    *("Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Square", "SquaredDifference", "Sub", "Tanh"),
}
_TRANSPOSED = ("Einsum", "Transpose")
_MOST_NODES = 64


def difference_of_computed(x: Tensor, y: Tensor) -> Tensor:
    return _computed(x, y) - y


def difference_of_integers(x: Tensor, y: Tensor) -> Tensor:
    return (y - x) * tf.constant(-1, x.dtype)


def quotient_of_computed(x: Tensor, y: Tensor) -> Tensor:
    return _computed(x, y) / y


def _computed(x: Tensor, y: Tensor) -> Tensor:
    """A constant that is computed: NaN where the other operand is, as the result is anyway."""
    return tf.where(tf.equal(y, y), x, tf.constant(np.nan, x.dtype))


def _is_swapped(node: Node) -> bool:
    """Whether the first operand is one number, and the second one a function of elements of what was transposed."""
    value = node.value(0)
    if value is None or not value.size or not (value == value.flat[0]).all():
        return False
    seen, left = set[str](), [node.producer(1)]
    while left and len(seen) < _MOST_NODES:
        found = left.pop()
        if found is None or found.message.name in seen:
            continue
        if found.op in _TRANSPOSED or str(found.attribute("data_format")).startswith("NC"):
            return True
        seen.add(found.message.name)
        if found.op in _OF_ELEMENTS:
            left += [found.producer(position) for position in range(len(found.inputs))]
    return False


def _is_of_swapped_floats(node: Node) -> bool:
    return is_float(node) and _is_swapped(node)


def _is_of_swapped_integers(node: Node) -> bool:
    return is_integer(node) and _is_swapped(node)


DIFFERENCES = (
    Decomposed(difference_of_computed, when=_is_of_swapped_floats),
    Decomposed(difference_of_integers, when=_is_of_swapped_integers),
)
QUOTIENT = Decomposed(quotient_of_computed, when=_is_of_swapped_floats)
