"""The way back through a function, on whichever backend Keras runs: for gradients that are written by hand."""

import keras
from keras import ops


def vjp(function, *arguments):
    """A function's value, and its vector-Jacobian product.

    Args:
        function: maps float tensors to one float tensor, or to a tuple of them.
        *arguments: float tensors.

    Returns:
        `(value, pullback)`: `pullback(cotangent)`, to be called once with what is like the value, gives for each argument
        the gradient of `sum(value * cotangent)`; zeros for one that the value does not depend on.

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


def _by_tensorflow(function, *arguments):
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(arguments)
        value = function(*arguments)

    def pullback(cotangent):
        gradients = tape.gradient(value, arguments, cotangent, unconnected_gradients="zero")
        return [tf.convert_to_tensor(gradient) for gradient in gradients]  # A gather's names rows alone.

    return value, pullback


def _by_jax(function, *arguments):
    import jax

    value, pullback = jax.vjp(function, *arguments)
    return value, lambda cotangent: list(pullback(cotangent))


def _by_torch(function, *arguments):
    import torch

    with torch.enable_grad():
        arguments = [argument.detach().requires_grad_() for argument in arguments]
        value = function(*arguments)

    def pullback(cotangent):
        outputs, cotangents = keras.tree.flatten(value), keras.tree.flatten(cotangent)
        return list(torch.autograd.grad(outputs, arguments, cotangents, materialize_grads=True))

    return keras.tree.map_structure(lambda x: x.detach(), value), pullback


def after(first, x):
    """`x`, but not before `first` is there: a graph would compute at once what it can, and keep it until it is needed.

    Barriers of the compilers do not hold everywhere: XLA drops its own on a processor, and then takes what is computed twice
    from the first time.

    Args:
        first, x: float tensors.

    Returns:
        `x`.
    """
    corner = ops.sum(first[(slice(1),) * len(first.shape)])  # 0 where there is nothing.
    # 0, whatever the number; the optimizers of graphs do not see that.
    return x + ops.cast(ops.where(corner > float("inf"), float("nan"), 0.0), x.dtype)
