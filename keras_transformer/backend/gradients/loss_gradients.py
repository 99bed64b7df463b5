"""The loss of a training step and its gradients, without the update, on TensorFlow and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor, Tensors


def loss_and_gradients(
    model: keras.Model, x: Tensors, y: Tensors, sample_weight: Tensors | None = None
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns the loss that `fit` computes for a batch, losses of layers included, and the gradient of each weight.

    The gradients are those that the optimizer receives: with a `LossScaleOptimizer` they are scaled. On TensorFlow the
    forward pass changes seeds, statistics and metrics as in training; on JAX it changes nothing.

    Args:
        model: a compiled, built `keras.Model` that trains by Keras's own `train_step`.
        x, y, sample_weight: a batch, as of `train_on_batch`.

    Returns:
        `(loss, gradients)`: a scalar, and a list in the order of `model.trainable_variables`, with None for weights that
        the loss does not depend on.

    Raises:
        NotImplementedError: another backend.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    >>> model.compile("sgd", "mse")
    >>> loss, (gradient,) = loss_and_gradients(model, np.array([[2.0]]), np.array([[5.0]]))
    >>> float(loss), float(gradient[0, 0])
    (9.0, -12.0)
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise NotImplementedError(f"Gradients of a training step need TensorFlow or JAX. The backend is {backend!r}.")
    return (_by_tensorflow if backend == "tensorflow" else _by_jax)(model, x, y, sample_weight)


def gradient_function(
    model: keras.Model, summarize: Callable[[list[Tensor]], object]
) -> Callable[[tuple[Tensors, Tensors | None, Tensors | None], Callable[[keras.Variable], Tensor]], Any]:
    """Returns a compiled function of a batch that summarizes the gradients, and changes nothing in the model.

    Args:
        model: a compiled, built `keras.Model` that trains by Keras's own `train_step`.
        summarize: function of the gradients, in the order of `model.trainable_variables`, to tensors. They are those of the
            loss itself, not scaled for an optimizer.

    Returns:
        A function of a batch `(x, y, sample_weight)` and of a function from a variable to its value, which JAX needs while
        `fit` runs.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    >>> model.compile("sgd", "mse")
    >>> function = gradient_function(model, lambda gradients: gradients[0][0, 0])
    >>> float(function((np.array([[2.0]]), np.array([[5.0]]), None), lambda variable: variable.value))
    -12.0
    """
    if keras.backend.backend() == "tensorflow":
        return _compiled_by_tensorflow(model, summarize)
    if keras.backend.backend() == "jax":
        return _compiled_by_jax(model, summarize)
    raise NotImplementedError(f"Gradients need TensorFlow or JAX. The backend is {keras.backend.backend()!r}.")


def _compiled_by_tensorflow(model, summarize):
    import tensorflow as tf

    @tf.function(reduce_retracing=True, jit_compile=bool(model.jit_compile))
    def compiled(x, y, sample_weight):
        return summarize(_by_tensorflow(model, x, y, sample_weight, scaled=False)[1])

    def function(batch, value):
        del value
        changed = [*model.non_trainable_variables, *model.metrics_variables]
        before = [tf.identity(each.value) for each in changed]
        try:
            return compiled(*batch)
        finally:
            for variable, each in zip(changed, before, strict=True):
                variable.assign(each)

    return function


def _compiled_by_jax(model, summarize):
    import jax

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.metrics_variables,
        model.optimizer.variables,
    )

    @jax.jit
    def compiled(state, x, y, sample_weight):
        weights, others, metrics, optimizer = state

        def loss_of(weights):
            _, (loss, *_) = model.compute_loss_and_updates(
                weights, others, metrics, x, y, sample_weight, training=True, optimizer_variables=optimizer
            )
            return loss

        return summarize(jax.grad(loss_of)(weights))

    def function(batch, value):
        return compiled([[value(each) for each in group] for group in groups], *batch)

    return function


def _by_tensorflow(model, x, y, sample_weight, scaled=True):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        y_pred = model(x, training=True) if keras_private.takes_training(model) else model(x)
        loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        total = model.optimizer.scale_loss(loss) if scaled and model.optimizer is not None else loss
    gradients = tape.gradient(total, model.trainable_variables)
    return loss, [None if each is None else tf.convert_to_tensor(each) for each in gradients]


def _by_jax(model, x, y, sample_weight):
    import jax

    def values(variables):
        return [variable.value for variable in variables]

    def loss_of(weights):
        optimizer = [] if model.optimizer is None else values(model.optimizer.variables)
        others, metrics = values(model.non_trainable_variables), values(model.metrics_variables)
        scaled, (loss, *_) = model.compute_loss_and_updates(
            weights, others, metrics, x, y, sample_weight, training=True, optimizer_variables=optimizer
        )
        return scaled, loss

    (_, loss), gradients = jax.value_and_grad(loss_of, has_aux=True)(values(model.trainable_variables))
    return loss, gradients
