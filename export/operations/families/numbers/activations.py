"""Activations of networks, and the loss of a softmax."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32, is_integer
from keras_transformer.export.operations.families.numbers.nan import is_not_of_limited, is_of_limited, or_nan
from keras_transformer.export.operations.operation import NAN, ONNX, TFLITE, Decomposed, Operation, Region
from keras_transformer.utils.types import Tensor

_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
_SCALES = ("BiasAdd", "AddV2", "Add", "Sub", "Mul", "RealDiv")
# Operations of which small operands are told from 0.
_RELATIVE = ("Log", "RealDiv", "Div", "DivNoNan", "Reciprocal", "Inv", "Rsqrt", "Xlogy", "Xdivy")
_LAYOUTS = ("Identity", "Reshape", "Transpose", "Squeeze", "ExpandDims")


def relu_of_product(x: Tensor) -> Tensor:
    """A leaky ReLU of slope 0, which `tflite.products` turns back.

    The converter takes a ReLU into a product of two computed tensors, whose operator has no activation in the file: it would
    be lost. It does not do so with a leaky one.
    """
    return tf.nn.leaky_relu(x, alpha=0.0)


def relu6_of_product(x: Tensor) -> Tensor:
    return tf.minimum(tf.nn.leaky_relu(x, alpha=0.0), 6.0)


def relu_of_integers(x: Tensor) -> Tensor:
    return tf.maximum(x, tf.constant(0, x.dtype))


def relu6_of_integers(x: Tensor) -> Tensor:
    return tf.minimum(relu_of_integers(x), tf.constant(6, x.dtype))


def sigmoid_of_any_size(x: Tensor) -> Tensor:
    """Of the exponential, which has all digits of small results."""
    small = tf.exp(-tf.abs(x))
    return tf.where(x < 0.0, small, tf.ones_like(x)) / (1.0 + small)


def selu_of_limited(x: Tensor) -> Tensor:
    return or_nan(x, tf.nn.selu(x))


def cross_entropy(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """The loss of the class that a label names, and its gradient."""
    shifted = logits - tf.reduce_max(logits, -1, keepdims=True)
    size = tf.reduce_sum(tf.exp(shifted), -1, keepdims=True)
    is_class = tf.one_hot(tf.cast(labels, tf.int32), tf.shape(logits)[-1], dtype=logits.dtype)
    loss = tf.math.log(tf.squeeze(size, -1)) - tf.reduce_sum(shifted * is_class, -1)
    return [loss, tf.exp(shifted) / size - is_class]


def _needs_small(node: Node) -> bool:
    """Whether what reads a result needs the digits of small ones, such as a logarithm."""
    return is_float32(node) and not set(_RELATIVE).isdisjoint(node.readers)


def _is_of_product(node: Node) -> bool:
    """Whether a node reads a product of tensors, perhaps reshaped, or scaled and shifted by weights."""
    return is_float32(node) and _is_product(node, node.inputs[0])


def _is_product(node: Node, source: str) -> bool:
    producer = node.part.node(source)
    if producer is None:
        return False
    if producer.op in _LAYOUTS:
        return _is_product(producer, producer.inputs[0])
    if producer.op in _SCALES:
        others = [each for each in producer.inputs if _is_computed(node, each)]
        return len(others) == 1 and _is_product(node, others[0])
    return producer.op in _PRODUCTS


def _is_computed(node: Node, source: str) -> bool:
    producer = node.part.node(source)
    return producer is not None and producer.op != "Placeholder" and not node.part.is_weight(source)


_RELU = Decomposed(relu_of_integers, when=is_integer)
_RELU6 = Decomposed(relu6_of_integers, when=is_integer)

OPERATIONS = (
    Operation("Relu", {TFLITE: (Decomposed(relu_of_product, when=_is_of_product), _RELU), ONNX: _RELU}),
    Operation("Relu6", {TFLITE: (Decomposed(relu6_of_product, when=_is_of_product), _RELU6), ONNX: _RELU6}),
    Operation("Elu", rounds=True, is_absolute=True),  # TensorFlow takes 1 off an exponential.
    Operation("LeakyRelu", rounds=True),
    Operation("LogSoftmax", rounds=True),
    Operation(
        "Selu",
        {TFLITE: Decomposed(selu_of_limited, when=is_of_limited)},
        rounds=True,
        differs={TFLITE: (Region(NAN, is_not_of_limited),)},
    ),
    # ONNX Runtime adds 1/2 to a quotient.
    Operation("Sigmoid", {ONNX: Decomposed(sigmoid_of_any_size, when=_needs_small)}, rounds=True, is_absolute=True),
    Operation("Softmax", rounds=True),
    Operation("Softsign", rounds=True),
    Operation("SparseSoftmaxCrossEntropyWithLogits", {TFLITE: Decomposed(cross_entropy)}, rounds=True),
)
