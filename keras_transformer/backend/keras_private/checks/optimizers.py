"""Self-tests of the private attributes of optimizers."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, dense, expect

CHECKS = SelfTests()


@CHECKS.of("Optimizer._get_variable_index")
def _variable_index() -> None:
    optimizer, layer = keras.optimizers.SGD(), dense()
    optimizer.build(layer.trainable_variables)
    expect([private.variable_index(optimizer, each) for each in layer.trainable_variables], [0, 1])


@CHECKS.of("BaseOptimizer.stateless_apply, BaseOptimizer._use_weight_decay, TFOptimizer")
def _stateless_optimizer() -> None:
    weights = [keras.Variable([1.0, 2.0], name="kernel"), keras.Variable([1.0, 2.0], name="bias")]
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer = private.stateless_optimizer(optimizer, weights)
    values, state = optimizer.stateless_apply(optimizer.variables, [ops.ones(2)] * 2, [each.value for each in weights])
    expect(np.allclose(values, [[0.45, 1.4], [0.5, 1.5]]), True)
    expect((int(state[0]), weights[0].numpy().tolist()), (1, [1.0, 2.0]))


@CHECKS.of("Optimizer._all_reduce_sum_gradients, _clip_gradients, _backend_apply_gradients, _accumulated_gradients")
def _updates() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    optimizer, weight = keras.optimizers.SGD(1.0, clipvalue=0.5, gradient_accumulation_steps=2), keras.Variable([3.0])
    private.exchange_before_clipping(optimizer)
    private.create_accumulators_of_replicas(optimizer)
    optimizer.build([weight])
    private.replace_update(optimizer, lambda *pairs: private.update_weights(optimizer, *pairs))
    optimizer.apply([ops.ones(1)])
    expect(weight.numpy().tolist(), [2.5])
    (accumulator,) = private.gradient_accumulators(optimizer, [weight])
    expect((accumulator.synchronization, accumulator.numpy().tolist()), ("on_read", [0.0]))


@CHECKS.of("Optimizer._update_model_variables_moving_average, _trainable_variables")
def _averages() -> None:
    optimizer, weight = keras.optimizers.SGD(use_ema=True, ema_momentum=0.5), keras.Variable([3.0])
    optimizer.build([weight])
    private.update_averages(optimizer)  # The first is the weight itself.
    expect(float(ops.sum(optimizer.variables[-1])), 3.0)
