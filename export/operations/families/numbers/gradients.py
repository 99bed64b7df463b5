"""Gradients of activations and roots, as of a model that takes a gradient in its call."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.operations.operation import Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor

# Of Klambauer et al., arXiv 1706.02515.
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def tanh_gradient(y: Tensor, gradient: Tensor) -> Tensor:
    return gradient * (1.0 - y * y)


def sigmoid_gradient(y: Tensor, gradient: Tensor) -> Tensor:
    return gradient * y * (1.0 - y)


def root_gradient(y: Tensor, gradient: Tensor) -> Tensor:
    return gradient * 0.5 / y


def reciprocal_root_gradient(y: Tensor, gradient: Tensor) -> Tensor:
    return gradient * -0.5 * y * y * y


def reciprocal_gradient(y: Tensor, gradient: Tensor) -> Tensor:
    return -gradient * y * y


def rectifier_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    return tf.where(x > 0.0, gradient, tf.zeros_like(gradient))


def limited_rectifier_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    return tf.where(tf.logical_and(x > 0.0, x < 6.0), gradient, tf.zeros_like(gradient))


def leaky_rectifier_gradient(gradient: Tensor, x: Tensor, *, alpha: float) -> Tensor:
    return tf.where(x > 0.0, gradient, gradient * alpha)


def elu_gradient(gradient: Tensor, y: Tensor) -> Tensor:
    return tf.where(y < 0.0, gradient * (y + 1.0), gradient)


def selu_gradient(gradient: Tensor, y: Tensor) -> Tensor:
    return tf.where(y < 0.0, gradient * (y + _SELU_SCALE * _SELU_ALPHA), gradient * _SELU_SCALE)


def softplus_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    return gradient * tf.sigmoid(x)


def softsign_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    return gradient / tf.square(1.0 + tf.abs(x))


_FUNCTIONS = {
    "EluGrad": elu_gradient,
    "InvGrad": reciprocal_gradient,
    "ReciprocalGrad": reciprocal_gradient,
    "Relu6Grad": limited_rectifier_gradient,
    "ReluGrad": rectifier_gradient,
    "RsqrtGrad": reciprocal_root_gradient,
    "SeluGrad": selu_gradient,
    "SigmoidGrad": sigmoid_gradient,
    "SoftplusGrad": softplus_gradient,
    "SoftsignGrad": softsign_gradient,
    "SqrtGrad": root_gradient,
    "TanhGrad": tanh_gradient,
}

OPERATIONS = (
    *(Operation(name, in_both(Decomposed(function)), rounds=True) for name, function in _FUNCTIONS.items()),
    Operation("LeakyReluGrad", in_both(Decomposed(leaky_rectifier_gradient, ("alpha",))), rounds=True),
)
