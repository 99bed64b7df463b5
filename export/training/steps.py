"""A training step and inference as functions of the state that changes: trained weights, and the optimizer's variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.types import Tensor, Tensors

LABELS, LOSS = "labels", "loss"


class TrainingSteps:
    """The steps of a model that trains with a loss and an optimizer, without dropout.

    Args:
        model: Functional `keras.Model` on TensorFlow. Its trainable variables train.
        loss: `keras.losses.Loss`.
        optimizer: `keras.optimizers.Optimizer`; a copy of it is used.

    Attributes:
        weights: list of the variables that train.
        state: list of all variables that change: `weights`, then those of the optimizer.

    Raises:
        InvalidModelError: nothing trains, the model has several outputs, a weight has a regularizer, or the optimizer keeps
            a variable to itself.
    """

    def __init__(self, model: keras.Model, loss: keras.losses.Loss, optimizer: keras.optimizers.Optimizer) -> None:
        self.weights = list(model.trainable_variables)
        _check(model, self.weights)
        self._model, self._loss = model, loss
        self._optimizer = keras_private.stateless_optimizer(optimizer, self.weights)
        _check_optimizer(self._optimizer)
        self.state = [*self.weights, *self._optimizer.variables]

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The optimizer, whose variables are part of the state."""
        return self._optimizer

    def infer(self, inputs: Tensors, weights: Sequence[Tensor]) -> Any:
        """The outputs of the model with these weights, in inference."""
        with self._values(weights):
            return self._model(inputs, training=False)

    def _values(self, weights: Sequence[Tensor]) -> keras.StatelessScope:
        """A scope in which these are the weights that train. The other weights are those of a scope around it."""
        trained = {id(each) for each in self.weights}
        others = [each for each in self._model.variables if id(each) not in trained]
        known = [(each, keras.ops.convert_to_tensor(each.value)) for each in others]
        return keras.StatelessScope([*zip(self.weights, weights, strict=True), *known])

    def train(self, inputs: Tensors, labels: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """One step of training.

        Args:
            inputs: a batch, in the structure of the model's inputs.
            labels: labels of the batch.
            state: the values of `self.state`.

        Returns:
            The loss before the step, and the values of `self.state` after it.
        """
        import tensorflow as tf

        count = len(self.weights)
        weights = list(state[:count])
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = self._loss(labels, self.infer(inputs, weights))
        gradients = tape.gradient(loss, weights)
        missing = [each.path for each, gradient in zip(self.weights, gradients, strict=True) if gradient is None]
        if missing:
            raise InvalidModelError(f"the loss does not depend on weight '{missing[0]}'", Remedy.FREEZE)
        weights, others = self._optimizer.stateless_apply(list(state[count:]), gradients, weights)
        return loss, [*weights, *others]


def _check(model: keras.Model, weights: Sequence[keras.Variable]) -> None:
    if keras.backend.backend() != "tensorflow":
        raise InvalidModelError("export_training needs Keras on TensorFlow: save the model and load it there")
    layers = keras_private.flatten_layers(model)
    reduced = next((each for each in layers if each.compute_dtype in ("float16", "bfloat16")), None)
    if reduced is not None:
        raise InvalidModelError(
            f"layer '{reduced.name}' computes in {reduced.compute_dtype}: build the model in float32"
        )
    if not weights:
        raise InvalidModelError(f"model '{model.name}' has no trainable weight", Remedy.TRAINABLE)
    if len(model.outputs) != 1:
        raise InvalidModelError(f"model '{model.name}' has {len(model.outputs)} outputs; one trains on the device")
    regularized = next((each.path for each in weights if getattr(each, "regularizer", None) is not None), None)
    if regularized is not None:
        raise InvalidModelError(f"weight '{regularized}' has a regularizer, whose loss is not part of the file")


def _check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    known = {id(each) for each in optimizer.variables}
    for each in vars(optimizer).values():
        if isinstance(each, keras.Variable) and id(each) not in known:
            name = type(optimizer).__name__
            raise InvalidModelError(f"{name} does not train on the device: '{each.path}' is none of its `variables`")
