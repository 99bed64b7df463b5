"""Updates of weights under `tf.distribute` that equal those of one device: with clipped, and with accumulated gradients."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DistributionError
from keras_transformer.utils.types import Tensor


def update_as_one_device(model: keras.Model) -> None:
    """Makes the optimizer of a model in a `tf.distribute` strategy update as it does on one device with the whole batch.

    Keras clips the gradients of each replica before it sums them, and accumulates gradients in a branch, in which replicas
    cannot exchange them. Here sums are clipped. Each replica accumulates its own gradients, and they are exchanged in the
    steps that update weights only. An optimizer that wraps another one, such as `LossScaleOptimizer`, is left as it is.

    Args:
        model: a compiled `keras.Model` whose optimizer is not built.

    Raises:
        DistributionError: gradients are accumulated together with `use_ema`, `steps_per_execution` above 1, or an optimizer
            that wraps another one.
    """
    optimizer: Any = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        if inner.gradient_accumulation_steps:
            raise DistributionError(
                f"Gradients are not accumulated inside of {type(optimizer).__name__} under tf.distribute. Omit "
                "gradient_accumulation_steps, or train in bfloat16, which needs no scaling of the loss."
            )
        return
    if not optimizer.gradient_accumulation_steps:
        keras_private.exchange_before_clipping(optimizer)
        return
    for option, conflicts in (("use_ema", optimizer.use_ema), ("steps_per_execution", model.steps_per_execution > 1)):
        if conflicts:
            raise DistributionError(
                f"gradient_accumulation_steps and {option} are not supported together under tf.distribute: omit one."
            )
    _accumulate(model, optimizer)


def _accumulate(model: Any, optimizer: Any) -> None:
    """Traces two train functions, one that accumulates gradients and one that updates weights, and calls the one due."""
    updates, make = False, model.make_train_function
    keras_private.exchange_before_clipping(optimizer)
    keras_private.create_accumulators_of_replicas(optimizer)

    def apply(gradients: list[Tensor], variables: list[keras.Variable]) -> None:
        sums = keras_private.gradient_accumulators(optimizer, variables)
        totals = [total.value + gradient for total, gradient in zip(sums, gradients, strict=True)]
        if updates:
            means = [total / optimizer.gradient_accumulation_steps for total in totals]
            keras_private.update_weights(optimizer, means, variables)
            totals = [keras.ops.zeros_like(total) for total in totals]
        for variable, total in zip(sums, totals, strict=True):
            variable.assign(total)

    def make_train_function(force: bool = False) -> None:
        if model.train_function is not None and not force:
            return
        functions = []
        for _ in range(2):
            make(force=True)
            functions.append(model.train_function)

        def train_function(iterator: Any) -> Any:
            nonlocal updates
            step = int(keras.ops.convert_to_numpy(optimizer.variables[0]))
            updates = (step + 1) % optimizer.gradient_accumulation_steps == 0
            return functions[updates](iterator)  # It is traced in its first call.

        model.train_function = train_function

    keras_private.replace_update(optimizer, apply)
    model.make_train_function = make_train_function
