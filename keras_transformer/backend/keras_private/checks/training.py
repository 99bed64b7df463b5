"""Self-tests of the private attributes of the loop of `fit`."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, expect, nested
from keras_transformer.utils.types import Outputs, Tensor

CHECKS = SelfTests()


@CHECKS.of("Layer._call_has_training_arg")
def _takes_training() -> None:
    class Plain(keras.Model):
        def call(self, x: Tensor) -> Outputs:
            return x

    expect([private.takes_training(each) for each in (nested(), Plain())], [True, False])


@CHECKS.of("Trainer._initial_epoch")
def _initial_epoch() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    start = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: private.set_initial_epoch(model, 2))
    history = model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=3, verbose=0, callbacks=[start])
    private.set_initial_epoch(model, None)
    expect(history.epoch, [2])


@CHECKS.of("JAXTrainer._get_jax_state, JAXTrainer._jax_state, JAXTrainer._jax_state_synced")
def _run_train_function() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile("sgd", "mse", run_eagerly=True)
    x, losses = np.ones((1, 1)), []

    class Again(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self.model.reset_metrics()
            losses.append(float(private.run_train_function(self.model, (x, x))["loss"]))

    model.fit(x, x, verbose=0, callbacks=[Again()])
    expect(round(losses[0], 4), 0.9604)
    expect(round(float(model.get_weights()[0][0, 0]), 4), 0.0396)


@CHECKS.of("JAXTrainer.jax_state_sync")
def _put_state_back() -> None:
    if keras.backend.backend() != "jax":
        return
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    state = [[ops.ones(each.shape, each.dtype) for each in group] for group in (*groups, model.metrics_variables)]
    private.put_state_back(model, state)
    expect(model.get_weights()[0].tolist(), [[1.0]])


@CHECKS.of("Trainer._symbolic_build")
def _build_for_a_batch() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    private.symbolic_build(model, (np.ones((1, 1)), np.ones((1, 1))))
    expect((model.optimizer.built, len(model.metrics_variables)), (True, 4))


@CHECKS.of("TensorFlowTrainer._maybe_symbolic_build")
def _symbolic_build() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    model, calls = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), []

    def wrapper(build):
        def symbolic_build(iterator=None, data_batch=None):
            calls.append(iterator is not None)
            build(iterator=iterator, data_batch=data_batch)

        return symbolic_build

    model.compile("sgd", "mse")
    private.wrap_symbolic_build(model, wrapper)
    model.evaluate(np.ones((1, 1)), np.ones((1, 1)), verbose=0)
    expect(bool(calls), True)
