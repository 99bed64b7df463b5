"""Vector-Jacobian products on every backend of Keras, for hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.backend.compilation.xla import is_traced_for_xla
from keras_transformer.utils.types import Tensor, Tensors


def vjp(function: Callable[..., object], *arguments: Tensor) -> tuple[Any, Callable[[Tensors], list[Tensor]]]:
    """Returns the value of a function and its vector-Jacobian product.

    Args:
        function: function of float tensors to a float tensor or a tuple of them.
        *arguments: float tensors.

    Returns:
        `(value, pullback)`. `pullback(cotangent)`, which can be called once, returns for each argument the gradient of
        `sum(value * cotangent)`; zeros if the value does not depend on it.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> value, pullback = vjp(lambda x, y: x * y, ops.array([2.0, 3.0]), ops.array([5.0, 7.0]))
    >>> [np.array(gradient).tolist() for gradient in pullback(ops.array([1.0, 10.0]))]
    [[5.0, 70.0], [2.0, 30.0]]
    """
    return {"tensorflow": _by_tensorflow, "jax": _by_jax, "torch": _by_torch}[keras.backend.backend()](
        function, *arguments
    )


def _by_tensorflow(
    function: Callable[..., object], *arguments: Tensor
) -> tuple[Any, Callable[[Tensors], list[Tensor]]]:
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(arguments)
        value = function(*arguments)

    def pullback(cotangent: Tensors) -> list[Tensor]:
        gradients = tape.gradient(value, arguments, cotangent, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]  # That of a gather is sparse.

    return value, pullback


def _by_jax(function: Callable[..., object], *arguments: Tensor) -> tuple[Any, Callable[[Tensors], list[Tensor]]]:
    import jax

    value, pullback = jax.vjp(function, *arguments)
    return value, lambda cotangent: list(pullback(cotangent))


def _by_torch(function: Callable[..., object], *arguments: Tensor) -> tuple[Any, Callable[[Tensors], list[Tensor]]]:
    import torch  # pyright: ignore[reportMissingImports]: an optional backend, which need not be installed.

    with torch.enable_grad():
        inputs = [torch.as_tensor(argument).detach().requires_grad_() for argument in arguments]
        value = function(*inputs)

    def pullback(cotangent: Tensors) -> list[Tensor]:
        outputs, cotangents = keras.tree.flatten(value), keras.tree.flatten(cotangent)
        return list(torch.autograd.grad(outputs, inputs, cotangents, materialize_grads=True))

    return keras.tree.map_structure(lambda x: x.detach(), value), pullback


def after(first: Tensor, x: Tensor) -> Tensor:
    """Returns `x`, but with a dependency on `first`, before which the graph does not compute anything from `x`.

    In graphs of TensorFlow it is a control dependency. XLA ignores those, and removes its own barriers on CPUs, so that it
    would eliminate the recomputation as a common subexpression: for XLA a zero is added that it cannot infer.

    Args:
        first, x: float tensors.

    Returns:
        `x`.
    """
    if keras.backend.backend() == "tensorflow" and not is_traced_for_xla():
        return not_before(first, x)
    corner = ops.sum(first[(slice(1),) * len(first.shape)])  # 0 if it is empty.
    # Always 0, which graph optimizers cannot infer.
    return x + ops.cast(ops.where(corner > float("inf"), float("nan"), 0.0), x.dtype)


def not_before(first: Tensor, x: Tensor) -> Tensor:
    """Returns `x`, which graphs of TensorFlow do not read before `first` is computed.

    TensorFlow computes whatever has its inputs, so that what is soon computed of `x` would wait in memory. Compilers order
    the operations themselves: for them it is `x`.

    Args:
        first, x: tensors.

    Returns:
        `x`.
    """
    if keras.backend.backend() != "tensorflow" or is_traced_for_xla():
        return x
    import tensorflow as tf

    with tf.control_dependencies([first]):
        return tf.identity(x)
