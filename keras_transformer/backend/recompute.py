"""Activations that are not kept for the backward pass, but computed again in it."""

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.backend.vjp import after, vjp


def recomputed(layer, function, *tensors):
    """`function(*tensors)`, of which only the inputs are kept for the gradient: all between is computed once more.

    The second time is the first over again: generators draw the same numbers, and statistics and losses that the layer and
    its parts add count once. On TensorFlow memory is saved where the step is traced, as `fit` does.

    Args:
        layer: `keras.layers.Layer`: it and its parts have all variables that `function` reads or changes.
        function: maps float tensors to one float tensor. What else it needs it brings along; no gradient goes there.
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
    values, changed = VariableValues([layer]), []

    def pure(*arguments):
        inputs, weights = arguments[: len(tensors)], arguments[len(tensors) :]
        with values.scope(weights, collect_losses=True) as scope, keras_private.autocast_scope(layer.compute_dtype):
            before = [scope.get_current_value(variable) for variable in values.others]
            output = function(*inputs)
            following = [scope.get_current_value(variable) for variable in values.others]
        pairs = zip(values.others, before, following, strict=True)
        changed[:] = [(variable, new) for variable, old, new in pairs if new is not old]
        return (output, *scope.losses), [new for _, new in changed]

    run = {"tensorflow": _on_tensorflow, "jax": _on_jax}.get(keras.backend.backend(), keras.remat)(pure)
    (output, *losses), states = run(*tensors, *values.weights)
    for loss in losses:
        layer.add_loss(loss)
    for (variable, _), state in zip(changed, states, strict=True):
        variable.assign(state)
    return output


def _on_tensorflow(function):
    """What `keras.remat` is on TensorFlow, for weights too: that one copies all it is given, and has no room for states.

    Args:
        function: maps float tensors to a tuple of float tensors, and a list of any.
    """
    import tensorflow as tf

    states = []

    @tf.custom_gradient
    def run(*arguments):
        results, states[:] = function(*arguments)
        return results, lambda *upstream: _gradients(function, arguments, upstream)

    return lambda *arguments: (run(*arguments), states)


def _on_jax(function):
    """What `keras.remat` is on JAX, on processors too: see `after`.

    Args:
        function: as of `_on_tensorflow`.
    """
    import jax

    run = jax.custom_vjp(function)
    run.defvjp(
        lambda *arguments: (function(*arguments), arguments),
        lambda arguments, upstream: tuple(_gradients(function, arguments, upstream[0])),
    )
    return run


def _gradients(function, arguments, upstream):
    """Those of all arguments, for which the function is computed once more."""
    # Not before the gradient is there: what is computed again would lie in memory until then.
    again = (after(upstream[0], arguments[0]), *arguments[1:])
    _, pullback = vjp(lambda *inputs: function(*inputs)[0], *again)
    return pullback(upstream)
