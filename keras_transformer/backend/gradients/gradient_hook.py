"""Looking at the gradient of a tensor while it is computed, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


def gradient_hook(x: Tensor, record: Callable[[Tensor], None]) -> Tensor:
    """Returns `x`; when the gradient of a loss is computed, `record` is called with the part that reaches this result.

    Only where operations run eagerly: in a compiled function `record` gets symbolic tensors.

    Args:
        x: float tensor.
        record: function of the gradient, a tensor of the shape of `x`.

    Returns:
        A tensor equal to `x`. Other uses of `x` itself do not contribute to the recorded gradient.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> from keras_transformer.backend.gradients.vjp import vjp
    >>> seen = []
    >>> _, pullback = vjp(lambda x: 3 * gradient_hook(x, lambda g: seen.append(float(g))) + x, ops.array(2.0))
    >>> float(pullback(ops.array(1.0))[0]), seen
    (4.0, [3.0])
    """
    return {"tensorflow": _by_tensorflow, "jax": _by_jax, "torch": _by_torch}[keras.backend.backend()](x, record)


def _by_tensorflow(x, record):
    import tensorflow as tf

    @tf.custom_gradient
    def identity(x):
        def pullback(gradient):
            record(gradient)
            return gradient

        return ops.copy(x), pullback

    return identity(x)


def _by_jax(x, record):
    import jax

    def pullback(_, gradient):
        record(gradient)
        return (gradient,)

    identity = jax.custom_vjp(lambda x: x)
    identity.defvjp(lambda x: (x, None), pullback)
    return identity(x)


def _by_torch(x, record):
    result = x.clone()
    if result.requires_grad:
        result.register_hook(lambda gradient: record(gradient))
    return result
