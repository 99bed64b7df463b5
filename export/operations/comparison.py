"""Comparisons, and what is finite."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation
from keras_transformer.utils.types import Tensor


def is_infinite(x: Tensor) -> Tensor:
    """The converter compares with the largest finite number for equality."""
    return tf.abs(x) > tf.constant(np.finfo("float32").max)


def _is_float32(node: Node) -> bool:
    return node.dtype() == tf.float32


OPERATIONS = (Operation("IsInf", {TFLITE: Decomposed(is_infinite, when=_is_float32)}),)
