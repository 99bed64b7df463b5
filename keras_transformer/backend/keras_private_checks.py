"""Self-tests of `keras_private`: what a new version of Keras breaks is named here first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private

CHECKS: dict[str, Callable[[], None]] = {}


class KerasPrivateError(RuntimeError):
    """The installed version of Keras lacks a private attribute that this project needs, or uses it differently."""


def check() -> None:
    """Runs the self-test of every private attribute of Keras that this project uses.

    Raises:
        KerasPrivateError: some fail; the message names the version of Keras and each attribute.

    Example:

    >>> check()
    """
    broken = []
    for attribute, test in CHECKS.items():
        try:
            test()
        except Exception as error:
            broken.append(f"{attribute} ({type(error).__name__}: {str(error)[:200]})")
    if broken:
        raise KerasPrivateError(f"Keras {keras.__version__} changed private attributes: {'; '.join(broken)}")


def _self_test(attribute: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(test: Callable[[], None]) -> Callable[[], None]:
        CHECKS[attribute] = test
        return test

    return register


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def _dense() -> keras.layers.Dense:
    layer = keras.layers.Dense(2, kernel_initializer="ones")
    layer.build((None, 3))
    return layer


def _nested() -> keras.Sequential:
    inner = keras.Sequential([keras.layers.Dense(1, name="c")], name="b")
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="a"), inner], name="outer")


@_self_test("Layer._flatten_layers")
def _flatten_layers() -> None:
    parts = [each.name for each in private.flatten_layers(_nested(), include_self=False)]
    _expect(sorted(name for name in parts if name in "abc"), ["a", "b", "c"])
    _expect("outer" in parts, False)
    _expect("outer" in [each.name for each in private.flatten_layers(_nested())], True)


@_self_test("Layer._layers")
def _layers() -> None:
    names = [each.name for each in private.direct_layers(_nested())]
    _expect([name for name in names if name in "abc"], ["a", "b"])


@_self_test("Dense._kernel")
def _kernel() -> None:
    _expect(tuple(private.kernel(_dense()).shape), (3, 2))
    einsum = keras.layers.EinsumDense("ab,bc->ac", 4)
    einsum.build((None, 3))
    _expect(tuple(private.kernel(einsum).shape), (3, 4))


@_self_test("Embedding._embeddings")
def _embeddings() -> None:
    layer = keras.layers.Embedding(5, 2)
    layer.build()
    _expect(tuple(private.embeddings(layer).shape), (5, 2))


@_self_test("Layer._seed_generators")
def _seed_generators() -> None:
    layer = keras.layers.Dropout(0.5)
    _expect([type(each) for each in private.seed_generators(layer)], [keras.random.SeedGenerator])


@_self_test("Layer._tracker, Layer._untrack_variable")
def _remove_variables() -> None:
    layer = _dense()
    private.remove_variables(layer, ["bias"])
    _expect(len(layer.variables), 1)
    _expect(hasattr(layer, "bias"), False)


@_self_test("Layer._tracker")
def _unlocked() -> None:
    layer = _dense()
    with private.unlocked(layer):
        layer.more = layer.add_weight(name="more", shape=())
    _expect([each.name for each in layer.variables], ["kernel", "bias", "more"])


@_self_test("Layer._convert_input_args")
def _unconverted_inputs() -> None:
    class Layer(private.InputConversion, keras.layers.Identity):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    layer = Layer(dtype="float16")
    x = ops.ones((1,), "float32")
    _expect(private.converts_inputs(layer), True)
    with private.unconverted_inputs(layer):
        _expect(private.converts_inputs(layer), False)
        _expect(keras.backend.standardize_dtype(layer(x).dtype), "float32")
    _expect(keras.backend.standardize_dtype(layer(x).dtype), "float16")


@_self_test("keras.src.backend.AutocastScope")
def _autocast_scope() -> None:
    variable = keras.Variable([1.0], dtype="float32")
    with private.autocast_scope("float16"):
        _expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float16")
        with private.autocast_scope(None):
            _expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float32")


@_self_test("Variable._autocast")
def _disable_autocast() -> None:
    variable = keras.Variable([1.0], dtype="float32")
    private.disable_autocast(variable)
    with private.autocast_scope("float16"):
        _expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float32")


@_self_test("global_state uninitialized_variables, Variable._value, ._initializer, ._deferred_initialize")
def _deferred_initialization() -> None:
    with private.deferred_initialization():
        variable = keras.Variable("zeros", shape=(2,), dtype="float32")
    _expect(private.has_value(variable), False)
    # The end of the next scope initializes all variables that are still registered.
    with keras.StatelessScope(initialize_variables=True):
        pass
    _expect(private.has_value(variable), False)
    first = private.initializer(variable)
    private.set_initializer(variable, lambda shape, dtype: first(shape, dtype) + 3)
    private.initialize(variable)
    _expect(private.has_value(variable), True)
    _expect(np.asarray(variable).tolist(), [3.0, 3.0])


@_self_test("Tensor._keras_mask")
def _masks() -> None:
    layer = keras.layers.Embedding(3, 2, mask_zero=True)
    mask = private.get_mask(layer(np.array([[0, 1]])))
    _expect(None if mask is None else np.asarray(mask).tolist(), [[False, True]])
    # A layer receives the mask that was attached here.
    masking, received = _MaskReader(), ops.ones((1, 2, 2))
    private.set_mask(received, ops.convert_to_tensor([[True, False]]))
    masking(received)
    _expect(np.asarray(masking.received).tolist(), [[True, False]])


class _MaskReader(keras.layers.Layer):
    """A layer that keeps the mask that Keras hands it."""

    received: object = None
    supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        self.received = mask
        return inputs


@_self_test("Sequential._functional")
def _functional() -> None:
    _expect(tuple(private.functional(_nested()).inputs[0].shape), (None, 3))


@_self_test("Functional._nodes_by_depth")
def _nodes_in_order() -> None:
    nodes = private.nodes_in_order(private.functional(_nested()))
    _expect([node.operation.name for node in nodes], ["a", "b"])


def _named_inputs() -> keras.Model:
    """A model of a dict whose keys are neither the names of the inputs nor sorted like them."""
    inputs = {"z": keras.Input((1,), name="first"), "a": keras.Input((1,), name="second")}
    return keras.Model(inputs, keras.layers.Subtract(name="difference")([inputs["z"], inputs["a"]]))


@_self_test("Functional, Functional._inputs_struct")
def _inputs_struct() -> None:
    model = _named_inputs()
    _expect([private.is_graph(each) for each in (model, _dense())], [True, False])
    names = private.input_names(model)
    _expect(
        {name: tensor.name for name, tensor in zip(names, model.inputs, strict=True)}, {"z": "first", "a": "second"}
    )
    packed = private.pack_inputs(model, [5.0 if name == "z" else 2.0 for name in names])
    _expect(packed, {"z": 5.0, "a": 2.0})
    _expect(private.input_names(private.functional(keras.Sequential([keras.Input((3,), name="x"), _dense()]))), ["x"])


@_self_test("Node.arguments")
def _arguments() -> None:
    (node,) = private.nodes_in_order(_named_inputs())
    first, second = private.first_argument(node)
    _expect([first.name, second.name], ["first", "second"])
    arguments, options = private.fill_in(node, {id(first): 5.0, id(second): 2.0})
    _expect((list(arguments[0]), options), ([5.0, 2.0], {}))


@_self_test("Layer.call as an attribute of an instance")
def _wrapped_calls() -> None:
    layer, seen = _dense(), []

    def wrap(layer, call):
        return lambda inputs: seen.append(layer.name) or call(inputs) + 1.0

    with private.wrapped_calls([layer], wrap):
        _expect(np.asarray(ops.convert_to_numpy(layer(np.ones((1, 3))))).tolist(), [[4.0, 4.0]])
    _expect(np.asarray(ops.convert_to_numpy(layer(np.ones((1, 3))))).tolist(), [[3.0, 3.0]])
    _expect(seen, [layer.name])


@_self_test("KerasTensor._keras_history, Operation._outbound_nodes")
def _graph() -> None:
    source = keras.Input((3,))
    first = keras.layers.Dense(2, name="first")(source)
    second = keras.layers.Dense(2, name="second")(first)
    _expect(private.producer(second).name, "second")
    _expect([node.operation.name for node in private.consumers(first)], ["second"])


@_self_test("Trainer._initial_epoch")
def _initial_epoch() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    start = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: private.set_initial_epoch(model, 2))
    history = model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=3, verbose=0, callbacks=[start])
    private.set_initial_epoch(model, None)
    _expect(history.epoch, [2])


@_self_test("Layer._call_has_training_arg")
def _takes_training() -> None:
    class Plain(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    _expect([private.takes_training(each) for each in (_nested(), Plain())], [True, False])


@_self_test("JAXTrainer._get_jax_state, JAXTrainer._jax_state, JAXTrainer._jax_state_synced")
def _run_train_function() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile("sgd", "mse", run_eagerly=True)
    x, losses = np.ones((1, 1)), []

    class Again(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.reset_metrics()
            losses.append(float(private.run_train_function(self.model, (x, x))["loss"]))

    model.fit(x, x, verbose=0, callbacks=[Again()])
    _expect(round(losses[0], 4), 0.9604)
    _expect(round(float(model.get_weights()[0][0, 0]), 4), 0.0396)


@_self_test("JAXTrainer.jax_state_sync")
def _put_state_back() -> None:
    if keras.backend.backend() != "jax":
        return
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    state = [[ops.ones(each.shape, each.dtype) for each in group] for group in (*groups, model.metrics_variables)]
    private.put_state_back(model, state)
    _expect(model.get_weights()[0].tolist(), [[1.0]])


@_self_test("Optimizer._get_variable_index")
def _variable_index() -> None:
    optimizer, layer = keras.optimizers.SGD(), _dense()
    optimizer.build(layer.trainable_variables)
    _expect([private.variable_index(optimizer, each) for each in layer.trainable_variables], [0, 1])


@_self_test("BaseOptimizer.stateless_apply, BaseOptimizer._use_weight_decay, TFOptimizer")
def _stateless_optimizer() -> None:
    weights = [keras.Variable([1.0, 2.0], name="kernel"), keras.Variable([1.0, 2.0], name="bias")]
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer = private.stateless_optimizer(optimizer, weights)
    values, state = optimizer.stateless_apply(optimizer.variables, [ops.ones(2)] * 2, [each.value for each in weights])
    _expect(np.allclose(values, [[0.45, 1.4], [0.5, 1.5]]), True)
    _expect((int(state[0]), weights[0].numpy().tolist()), (1, [1.0, 2.0]))


@_self_test("Variable._initialize")
def _initialize_with() -> None:
    with private.deferred_initialization():
        variable = keras.Variable("zeros", shape=(2,), dtype="float32")
    private.initialize_with(variable, ops.ones(2))
    _expect((np.asarray(ops.convert_to_numpy(variable)).tolist(), private.initializer(variable)), ([1.0, 1.0], None))


@_self_test("Layer._trainable_variables")
def _own_weights() -> None:
    layer = _dense()
    layer.trainable = False
    _expect([each.name for each in private.own_weights(layer)], ["kernel", "bias"])
    _expect(private.own_weights(keras.layers.Dropout(0.5, seed=0)), [])
    _expect(private.own_weights(_nested()), [])


@_self_test("keras.src.backend.common.stateless_scope.get_stateless_scope")
def _stateless_scope() -> None:
    _expect(private.stateless_scope(), None)
    with keras.StatelessScope() as scope:
        _expect(private.stateless_scope() is scope, True)


@_self_test("Optimizer._all_reduce_sum_gradients, _clip_gradients, _backend_apply_gradients, _accumulated_gradients")
def _updates() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    optimizer, weight = keras.optimizers.SGD(1.0, clipvalue=0.5, gradient_accumulation_steps=2), keras.Variable([3.0])
    private.exchange_before_clipping(optimizer)
    private.create_accumulators_of_replicas(optimizer)
    optimizer.build([weight])
    private.replace_update(optimizer, lambda *pairs: private.update_weights(optimizer, *pairs))
    optimizer.apply([ops.ones(1)])
    _expect(weight.numpy().tolist(), [2.5])
    (accumulator,) = private.gradient_accumulators(optimizer, [weight])
    _expect((accumulator.synchronization, accumulator.numpy().tolist()), ("on_read", [0.0]))


@_self_test("Optimizer._update_model_variables_moving_average, _trainable_variables")
def _averages() -> None:
    optimizer, weight = keras.optimizers.SGD(use_ema=True, ema_momentum=0.5), keras.Variable([3.0])
    optimizer.build([weight])
    private.update_averages(optimizer)  # The first is the weight itself.
    _expect(float(ops.sum(optimizer.variables[-1])), 3.0)


@_self_test("Trainer._symbolic_build")
def _build_for_a_batch() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    private.symbolic_build(model, (np.ones((1, 1)), np.ones((1, 1))))
    _expect((model.optimizer.built, len(model.metrics_variables)), (True, 4))


@_self_test("Trainer._maybe_symbolic_build")
def _symbolic_build() -> None:
    model, calls = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), []

    def wrapper(build):
        def symbolic_build(iterator=None, data_batch=None):
            calls.append(iterator is not None)
            build(iterator=iterator, data_batch=data_batch)

        return symbolic_build

    model.compile("sgd", "mse")
    private.wrap_symbolic_build(model, wrapper)
    model.evaluate(np.ones((1, 1)), np.ones((1, 1)), verbose=0)
    _expect(bool(calls), True)
