"""The batches of a running `fit`, shown to callbacks before each step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DistributionError
from keras_transformer.utils.errors import on_failure
from keras_transformer.utils.types import Tensor, Tensors

# Called with the batches of a step, and a function from a variable to its value before the step.
Observer = Callable[[list[object], Callable[[keras.Variable], Tensor]], None]


class _ObservedTrainFunction:
    """The train function of a model, which shows the batches of each call to observers before it runs.

    It reads the batches in Python. On TensorFlow `fit` otherwise reads them within the compiled function.
    """

    def __init__(self, model: keras.Model, train_function: Callable[..., object]) -> None:
        self.model = model
        self.train_function = train_function
        self.history = model.history  # A new one in each `fit`.
        self.observers: list[Observer] = []

    def __call__(self, *arguments: Any) -> object:
        *state, iterator = arguments
        model = self.model
        batches = list(itertools.islice(iterator, model.steps_per_execution or 1))
        if not batches:
            raise StopIteration
        values = _values_of_state(model, state[0]) if state else _own_value
        with on_failure(keras_private.put_state_back, model, state[0]) if state else contextlib.nullcontext():
            for observer in list(self.observers):
                observer(batches, values)
        return self.train_function(*state, iter(batches))


def _own_value(variable):
    return variable.value


def _values_of_state(model, state):
    """On JAX the values are arguments of the train function: the variables have none meanwhile."""
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )

    def value(variable):
        for variables, values in zip(groups, state, strict=True):
            for each, found in zip(variables, values, strict=True):
                if each is variable:
                    return found
        raise KeyError(variable.path)

    return value


def observe_steps(model: keras.Model, observer: Observer, takes_replicas: bool = False) -> None:
    """Calls a method before each call of the train function, from `on_train_begin` of a callback on.

    Its arguments are the list of batches, `steps_per_execution` of them or fewer at the end of an epoch, and a function
    that returns the current value of a variable of the model or its optimizer.

    Args:
        model: the model in training, whose `fit` is running.
        observer: a method of a callback.
        takes_replicas: bool. Whether it takes batches in parts, one for each replica of `tf.distribute`: see `whole_batch`.

    Raises:
        DistributionError: `tf.distribute` trains on several replicas, and the observer takes whole batches only.
    """
    replicas = getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1)
    if replicas > 1 and not takes_replicas:
        name = type(getattr(observer, "__self__", observer)).__name__
        raise DistributionError(f"{name} reads the batches of a single device; tf.distribute trains on {replicas}.")
    stop_observing(model, observer)
    function = model.train_function
    if isinstance(function, _ObservedTrainFunction) and function.history is not model.history:
        function = function.train_function  # Left by a `fit` that was interrupted.
    if not isinstance(function, _ObservedTrainFunction):
        function = model.train_function = _ObservedTrainFunction(model, function)
    function.observers.append(observer)


def whole_batch(model: keras.Model, batch: Any) -> Any:
    """Returns an observed batch with the rows of all replicas of `tf.distribute` in this process, in their order."""
    if keras.backend.backend() != "tensorflow" or model.distribute_strategy.num_replicas_in_sync == 1:
        return batch

    def joined(x: Tensors) -> Tensor:
        return keras.ops.concatenate(model.distribute_strategy.experimental_local_results(x), axis=0)

    return keras.tree.map_structure(joined, batch)


def stop_observing(model: keras.Model, observer: Observer) -> None:
    """Removes an observer, and restores the train function of the model when none is left."""
    function = model.train_function
    if isinstance(function, _ObservedTrainFunction):
        function.observers = [each for each in function.observers if each != observer]
        if not function.observers:
            model.train_function = function.train_function
