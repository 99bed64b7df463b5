"""Integers of 8 and 16 bits, and unsigned ones, of which runtimes compute little: they are cast to a wider type and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed
from keras_transformer.utils.types import Tensor

# A sum or a product in the wider type has the same last bits.
_ARITHMETIC = ("Cumprod", "Cumsum", "FloorDiv", "Mean", "Pow", "Prod", "Sum")
_COMPARISONS = ("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual")
_NAMES = {
    TFLITE: (
        *_ARITHMETIC,
        *_COMPARISONS,
        *("Add", "AddV2", "FloorMod", "Max", "Maximum", "Min", "Minimum", "Mul", "Neg", "Pad", "PadV2"),
        *("ReverseV2", "Square", "Sub", "Tile", "TruncateDiv", "UnsortedSegmentMax", "UnsortedSegmentMin"),
        "UnsortedSegmentProd",
        "UnsortedSegmentSum",
    ),
    ONNX: (*_ARITHMETIC, "Max", "Maximum", "Min", "Minimum", "PadV2", "UnsortedSegmentProd"),
}
_SHIFTS = ("LeftShift", "RightShift")
_WIDER = {tf.int8: tf.int32, tf.uint8: tf.int32, tf.int16: tf.int32, tf.uint16: tf.int32, tf.uint32: tf.int64}


def _through_wider_type(operation: str) -> Decomposed:
    definition = op_def_registry.get(operation)
    compute: Callable[..., Tensor] = getattr(tf.raw_ops, operation)
    # Python calls some inputs otherwise than the definition does.
    names = list(inspect.signature(compute).parameters)[: len(definition.input_arg)]
    is_cast = [each.type_attr == "T" for each in definition.input_arg]
    has_type = definition.output_arg[0].type_attr == "T"

    def in_wider_type(*operands: Tensor, **attributes: object) -> Tensor:
        given = zip(names, operands, is_cast, strict=True)
        wide = {name: tf.cast(x, _WIDER[x.dtype]) if is_wide else x for name, x, is_wide in given}
        found = compute(**wide, **attributes)
        return tf.cast(found, operands[0].dtype) if has_type else found

    attributes = tuple(each.name for each in definition.attr if each.type != "type")
    return Decomposed(in_wider_type, attributes, _is_narrow)


def _shift(operation: str) -> Decomposed:
    """A shift in the wider type. One by as many bits as a number has, or more, is one by all but one, as in TensorFlow."""
    compute: Callable[..., Tensor] = getattr(tf.raw_ops, operation)

    def in_wider_type(x: Tensor, y: Tensor) -> Tensor:
        wide = _WIDER[x.dtype]
        most = tf.constant(8 * x.dtype.size - 1, wide)
        return tf.cast(compute(x=tf.cast(x, wide), y=tf.minimum(tf.cast(y, wide), most)), x.dtype)

    return Decomposed(in_wider_type, (), _is_narrow)


def _is_narrow(node: Node) -> bool:
    """Whether the first input is of integers that have a wider type."""
    return node.dtype() in _WIDER


# Narrow integers are cast before all else that becomes of an operation.
OF_NARROW = {
    name: {format: _through_wider_type(name) for format, names in _NAMES.items() if name in names}
    for name in sorted({name for names in _NAMES.values() for name in names})
} | {name: {format: _shift(name) for format in _NAMES} for name in _SHIFTS}
