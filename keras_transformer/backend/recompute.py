"""Gradient checkpointing: activations that are recomputed in the backward pass."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.backend.vjp import after, vjp
from keras_transformer.backend.xla import is_unfused
from keras_transformer.utils.types import Tensor

_is_recomputed: contextvars.ContextVar[bool] = contextvars.ContextVar("is_recomputed", default=False)


@contextlib.contextmanager
def _recomputing() -> Iterator[None]:
    token = _is_recomputed.set(True)
    try:
        yield
    finally:
        _is_recomputed.reset(token)


def recomputes_elementwise() -> bool:
    """Returns whether layers should recompute the elementwise operations between two products, which take little time.

    In graphs of TensorFlow without XLA, outside of what is recomputed as a whole. Run eagerly, the second product would be
    computed again, too.
    """
    return is_unfused() and not _is_recomputed.get()


def recomputed(
    layer: keras.layers.Layer,
    function: Callable[..., Tensor],
    *tensors: Tensor,
    parts: Sequence[keras.layers.Layer] | None = None,
) -> Tensor:
    """Returns `function(*tensors)` with gradient checkpointing: only the inputs are stored for the backward pass.

    The recomputation equals the first pass: seed generators draw the same numbers, and statistics and losses that the layer
    and its parts add count once. On TensorFlow this saves memory in a traced step, such as that of `fit`.

    Args:
        layer: `keras.layers.Layer` that has, itself or in its parts, all variables that `function` reads or changes.
        function: function of float tensors to one float tensor. Tensors that it closes over get no gradient.
        *tensors: float tensors.
        parts: parts of the layer that have these variables; None for the layer itself.

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
    values = VariableValues([layer] if parts is None else parts)
    changed: list[tuple[keras.Variable, Tensor]] = []

    def pure(*arguments: Tensor) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        inputs, weights = arguments[: len(tensors)], arguments[len(tensors) :]
        autocast = keras_private.autocast_scope(layer.compute_dtype)
        with _recomputing(), values.scope(weights, collect_losses=True) as scope, autocast:
            before = [scope.get_current_value(variable) for variable in values.others]
            output = function(*inputs)
            following = [scope.get_current_value(variable) for variable in values.others]
        pairs = zip(values.others, before, following, strict=True)
        changed[:] = [(variable, new) for variable, old, new in pairs if new is not old]
        return (output, *scope.losses), [new for _, new in changed]

    checkpointed = {"tensorflow": _on_tensorflow, "jax": _on_jax, "torch": keras.remat}[keras.backend.backend()]
    run = checkpointed(pure)
    (output, *losses), states = run(*tensors, *values.weights)
    for loss in losses:
        layer.add_loss(loss)
    for (variable, _), state in zip(changed, states, strict=True):
        variable.assign(state)
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


def _on_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.remat` on JAX that also saves memory on CPUs: see `after`; `function` is as for `_on_tensorflow`."""
    import jax

    run = jax.custom_vjp(function)
    run.defvjp(
        lambda *arguments: (function(*arguments), arguments),
        # Behind the barrier, sharded weights are gathered again, rather than kept whole since the forward pass.
        lambda arguments, upstream: tuple(_gradients(function, jax.lax.optimization_barrier(arguments), upstream[0])),
    )
    return run


def _gradients(function: Callable[..., Any], arguments: tuple[Tensor, ...], upstream: Any) -> list[Tensor]:
    """Returns the gradients of all arguments, recomputing the function."""
    # Not before the gradient is available: the recomputed activations would be in memory until then.
    again = (after(upstream[0], arguments[0]), *arguments[1:])
    _, pullback = vjp(lambda *inputs: function(*inputs)[0], *again)
    return pullback(upstream)
