"""Optimizers: stateless copies, and how gradients are summed, clipped, accumulated and applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras

from keras_transformer.utils.types import Initializer, Tensor


def stateless_optimizer(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> keras.optimizers.Optimizer:
    """Returns a copy for variables that has `stateless_apply` on TensorFlow too.

    Keras leaves it out there for the sake of `tf.distribute`, whose methods are those of other backends in the copy. Which
    variables are excluded from weight decay, which is no part of an optimizer's config, is copied too. The paths of its
    variables begin with "optimizer".
    """
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    general = keras.optimizers.Optimizer
    methods = {
        name: getattr(BaseOptimizer, name)
        for parent in general.__mro__
        if parent.__name__ == "TFOptimizer"
        for name in vars(parent)
        if not name.startswith("__") and callable(getattr(BaseOptimizer, name, None))
    }
    # After the methods of the optimizer's own class, before those of the general one.
    stateless = type("StatelessOptimizer", (general,), methods)
    cls: type[keras.optimizers.Optimizer] = type(type(optimizer).__name__, (type(optimizer), stateless), {})
    # Automatic names depend on how many optimizers there were before.
    copy = cls.from_config({**optimizer.get_config(), "name": "optimizer"})
    kept = [each for each in variables if not optimizer._use_weight_decay(each)]
    if kept:
        copy.exclude_from_weight_decay(var_list=kept)
    copy.build(variables)
    return copy


def exchange_before_clipping(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes a TensorFlow optimizer sum gradients over the replicas of `tf.distribute` before it clips them, not after."""
    exchange, clip = optimizer._all_reduce_sum_gradients, optimizer._clip_gradients
    optimizer._all_reduce_sum_gradients = list

    def exchange_and_clip(gradients: Sequence[Tensor]) -> list[Tensor]:
        return clip([total for total, _ in exchange([(gradient, None) for gradient in gradients])])

    optimizer._clip_gradients = exchange_and_clip


def create_accumulators_of_replicas(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an optimizer that is not built create accumulators of gradients that each replica changes by itself.

    Outside of replicas, such as in a checkpoint, the value of one is the sum over the replicas.
    """
    create = optimizer.add_variable_from_reference

    def add_variable_from_reference(
        reference_variable: keras.Variable, name: str | None = None, initializer: Initializer = "zeros"
    ) -> keras.Variable:
        if name != "gradient_accumulator":
            return create(reference_variable, name=name, initializer=initializer)
        variable = keras.Variable(
            initializer,
            shape=reference_variable.shape,
            dtype=reference_variable.dtype,
            trainable=False,
            aggregation="sum",
            synchronization="on_read",
            name=f"{reference_variable.path.replace('/', '_')}_{name}",
        )
        optimizer._track_variable(variable)
        return variable

    optimizer.add_variable_from_reference = add_variable_from_reference


def gradient_accumulators(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> list[keras.Variable]:
    """Returns the accumulators of the gradients of variables."""
    return [optimizer._accumulated_gradients[optimizer._get_variable_index(variable)] for variable in variables]


def update_weights(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Tensor], variables: Sequence[keras.Variable]
) -> None:
    """Clips gradients and updates weights, as an optimizer that does not accumulate gradients does."""
    gradients = optimizer._clip_gradients(gradients)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)


def update_averages(optimizer: keras.optimizers.Optimizer) -> None:
    """Updates the moving averages of the weights, of an optimizer with `use_ema`."""
    optimizer._update_model_variables_moving_average(optimizer._trainable_variables)


def replace_update(
    optimizer: keras.optimizers.Optimizer, function: Callable[[list[Tensor], list[keras.Variable]], None]
) -> None:
    """Replaces the method by which `apply` updates weights, and accumulates gradients, by unscaled gradients."""
    optimizer._backend_apply_gradients = function


def variable_index(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """Returns the index of a variable among those that a built optimizer trains."""
    return optimizer._get_variable_index(variable)
