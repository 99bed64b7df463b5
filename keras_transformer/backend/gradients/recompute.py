"""Gradient checkpointing: activations that are recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.backend.gradients.vjp import after, vjp
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.utils.types import Tensor


def recomputed(layer: keras.layers.Layer, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Returns `function(*tensors)` with gradient checkpointing: only the inputs are stored for the backward pass.

    The recomputation equals the first pass: seed generators draw the same numbers, and statistics and losses that the layer
    and its parts add count once. On TensorFlow this saves memory in a traced step, such as that of `fit`.

    Args:
        layer: `keras.layers.Layer` that has, itself or in its parts, all variables that `function` reads or changes.
        function: function of float tensors to one float tensor. Tensors that it closes over get no gradient.
        *tensors: float tensors.

    Returns:
        The tensor.

    Example:

    >>> from keras import ops
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> layer.build((None, 2))
    >>> ops.convert_to_numpy(recomputed(layer, lambda x: layer(x) ** 2, ops.array([[1.0, 2.0]]))).tolist()
    [[9.0]]

    Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174.
    """
    values = VariableValues([layer])
    indices: list[int] = []  # Of the states that change.

    def pure(*arguments: Tensor) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        inputs, weights = arguments[: len(tensors)], arguments[len(tensors) :]
        output, losses, changed = values.call(layer, function, inputs, weights)
        indices[:] = changed
        return (output, *losses), list(changed.values())

    checkpointed = {"tensorflow": _on_tensorflow, "jax": _on_jax, "torch": keras.remat}[keras.backend.backend()]
    run = checkpointed(pure)
    (output, *losses), states = run(*tensors, *values.weights)
    values.commit(layer, losses, dict(zip(indices, states, strict=True)))
    return output


def _on_tensorflow(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.remat` on TensorFlow, with gradients of weights and with states; that one copies all arguments.

    Args:
        function: function of float tensors to a tuple of float tensors, and a list of any tensors.
    """
    import tensorflow as tf

    states: list[Tensor] = []

    @tf.custom_gradient
    def run(*arguments: Tensor) -> Any:
        results, states[:] = function(*arguments)
        return results, lambda *upstream: _gradients(function, arguments, upstream)

    return lambda *arguments: (run(*arguments), states)


def _on_jax(function: Callable[..., object]) -> Callable[..., Any]:
    """`keras.remat` on JAX that also saves memory on CPUs: see `after`; `function` is as for `_on_tensorflow`."""
    import jax

    run = jax.custom_vjp(function)
    run.defvjp(
        lambda *arguments: (function(*arguments), arguments),
        # Behind the barrier, sharded weights are gathered again, rather than kept whole since the forward pass.
        lambda arguments, upstream: tuple(_gradients(function, jax.lax.optimization_barrier(arguments), upstream[0])),
    )
    return run


def _gradients(
    function: Callable[..., Any], arguments: tuple[Tensor, ...], upstream: tuple[Tensor, ...]
) -> list[Tensor]:
    """Returns the gradients of all arguments, recomputing the function."""
    # Not before the gradient is available: the recomputed activations would be in memory until then.
    again = (after(upstream[0], arguments[0]), *arguments[1:])
    _, pullback = vjp(lambda *inputs: function(*inputs)[0], *again)
    return pullback(upstream)
