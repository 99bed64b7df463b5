"""Updates of weights under `tf.distribute` that equal those of one device: with clipped, and with accumulated gradients."""

from __future__ import annotations

from collections.abc import Iterator

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DistributionError
from keras_transformer.utils.types import Logs, Tensor, Tensors


def update_as_one_device(model: keras.Model) -> None:
    """Makes the optimizer of a model in a `tf.distribute` strategy update as it does on one device with the whole batch.

    Keras clips the gradients of each replica before it sums them, and accumulates gradients in a branch, in which replicas
    cannot exchange them. Here sums are clipped. Each replica accumulates its own gradients, and they are exchanged in the
    steps that update weights only. Of a `LossScaleOptimizer`, this changes the optimizer inside.

    Args:
        model: a compiled `keras.Model` whose optimizer is not built.

    Raises:
        DistributionError: gradients are accumulated with `steps_per_execution` above 1; `ema_overwrite_frequency`.
    """
    optimizer: keras.optimizers.Optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if optimizer.use_ema and optimizer.ema_overwrite_frequency:
        raise DistributionError(
            "Under tf.distribute, Keras does not replace weights by their averages during training: omit "
            "ema_overwrite_frequency. At the end of fit they are replaced."
        )
    keras_private.exchange_before_clipping(optimizer)
    if not optimizer.gradient_accumulation_steps:
        return
    if model.steps_per_execution > 1:
        raise DistributionError(
            "gradient_accumulation_steps and steps_per_execution are not supported together under tf.distribute: omit one."
        )
    _accumulate(model, optimizer)


def _accumulate(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Traces two train functions, one that accumulates gradients and one that updates weights, and calls the one due."""
    updates, make = False, model.make_train_function
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
        if optimizer.use_ema:
            keras_private.update_averages(optimizer)

    def make_train_function(force: bool = False) -> None:
        if model.train_function is not None and not force:
            return
        functions = []
        for _ in range(2):
            make(force=True)
            functions.append(model.train_function)

        def train_function(iterator: Iterator[Tensors]) -> Logs:
            nonlocal updates
            step = int(keras.ops.convert_to_numpy(optimizer.variables[0]))  # `iterations` counts updates only.
            updates = (step + 1) % optimizer.gradient_accumulation_steps == 0
            return functions[updates](iterator)  # It is traced in its first call.

        model.train_function = train_function

    keras_private.replace_update(optimizer, apply)
    model.make_train_function = make_train_function
