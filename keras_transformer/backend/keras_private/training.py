"""The loop of `fit`: its train function, its first epoch, and how it builds metrics and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras

from keras_transformer.utils.types import Logs, Tensor, Tensors

_JAX_STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


def takes_training(model: keras.Model) -> bool:
    """Returns whether `model.call` has an argument `training`."""
    return model._call_has_training_arg


def run_train_function(model: keras.Model, batch: Tensors) -> Logs:
    """Trains on a batch with the function that `fit` compiled, and returns the logs; the metrics go on from before.

    `train_on_batch` compiles it again, because its batches always have sample weights.

    Args:
        model: `keras.Model` whose `fit` is running, in a callback that has used `Callback.model`.
        batch: a batch as `fit` got it from its data.
    """
    if keras.backend.backend() != "jax":
        return model.train_function(iter([batch]))
    state = model._get_jax_state(**dict.fromkeys(_JAX_STATE, True), purge_model_variables=True)
    logs, state = model.train_function(state, iter([batch]))
    put_state_back(model, state)
    return logs


def put_state_back(model: keras.Model, state: Sequence[Sequence[Tensor]]) -> None:
    """Gives the variables of a model the values of the state that the train function of JAX takes and returns.

    They have none while it runs: when it raises an error in the first step, Keras does not give them back.
    """
    model._jax_state, model._jax_state_synced = dict(zip(_JAX_STATE, state, strict=True)), False
    model.jax_state_sync()


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Sets the epoch at which the running `fit` starts, from `on_train_begin`; None after training."""
    model._initial_epoch = epoch


def wrap_symbolic_build(model: keras.Model, wrapper: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replaces the method by which `model.fit` builds metrics and optimizer from a first batch.

    Args:
        model: `keras.Model`.
        wrapper: function of that method, whose arguments are `iterator` and `data_batch`, to the new one.
    """
    model._maybe_symbolic_build = wrapper(model._maybe_symbolic_build)


def symbolic_build(model: keras.Model, batch: Tensors) -> None:
    """Builds the metrics and the optimizer of a compiled model for a batch, `(x, y)` or more, as `fit` does."""
    model._symbolic_build(data_batch=batch)
