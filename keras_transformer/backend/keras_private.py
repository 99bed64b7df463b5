"""The private attributes of Keras that this project uses: no other file touches one.

Keras has no public way to any of these. Each function here has a self-test in `keras_private_checks`, whose `check` names
those that the installed version of Keras broke. Tried with Keras 3.14 and 3.15.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_UNINITIALIZED = "uninitialized_variables"
_JAX_STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


class _Thread(threading.local):
    """What belongs to the calling thread."""

    def __init__(self) -> None:
        self.unconverted_layers: set[int] = set()  # Ids of the layers that are in `unconverted_inputs`.


_thread = _Thread()


# Layers and their variables.


def flatten_layers(layer: keras.layers.Layer, include_self: bool = True) -> list[keras.layers.Layer]:
    """Returns the layers in `layer` at any depth, and `layer` itself if `include_self`."""
    return list(layer._flatten_layers(include_self=include_self))


def direct_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the layers directly in `layer`, in the order of their creation."""
    return list(layer._layers)


def kernel(layer: keras.layers.Layer) -> keras.Variable:
    """Returns the kernel of a `Dense` or `EinsumDense` layer as stored: without LoRA, not dequantized."""
    return layer._kernel


def embeddings(layer: keras.layers.Embedding) -> keras.Variable:
    """Returns the table of an `Embedding` layer as stored: without LoRA, not dequantized."""
    return layer._embeddings


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the weights that are attributes of `layer` itself, frozen ones included, without states and statistics."""
    return list(layer._trainable_variables)


def seed_generators(layer: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators that are attributes of `layer` itself."""
    return list(layer._seed_generators)


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Context in which a built layer can get further variables, or lose some."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def remove_variables(layer: keras.layers.Layer, names: Iterable[str]) -> None:
    """Deletes attributes of a built layer that hold variables, which `layer.variables` then no longer lists."""
    with unlocked(layer):
        for name in names:
            layer._untrack_variable(getattr(layer, name))
            # Not that of `Layer`, which collects garbage each time: minutes for the adapters of a large traced model.
            super(keras.layers.Layer, layer).__delattr__(name)


def converts_inputs(layer: keras.layers.Layer) -> bool:
    """Returns whether calls of `layer` cast their float arguments to the compute dtype."""
    return layer._convert_input_args


class InputConversion:
    """Mixin of a layer whose input conversion `unconverted_inputs` disables for one thread.

    Keras's attribute is one for all threads: a thread that clears it changes what another thread's call computes.
    """

    @property
    def _convert_input_args(self) -> bool:
        return vars(self).get("_converts_inputs", True) and id(self) not in _thread.unconverted_layers

    @_convert_input_args.setter
    def _convert_input_args(self, value: bool) -> None:
        vars(self)["_converts_inputs"] = value


@contextlib.contextmanager
def unconverted_inputs(layer: InputConversion) -> Iterator[None]:
    """Context in which this thread's calls of `layer` receive their arguments as they are, not cast to the compute dtype."""
    layers = _thread.unconverted_layers
    is_outermost = id(layer) not in layers
    layers.add(id(layer))
    try:
        yield
    finally:
        if is_outermost:
            layers.discard(id(layer))


# Variables.


def autocast_scope(dtype: str | None) -> AbstractContextManager[Any]:
    """Returns a context in which float variables are read as `dtype`; as they are stored if None."""
    from keras.src.backend import AutocastScope

    return AutocastScope(dtype)


def stateless_scope() -> keras.StatelessScope | None:
    """Returns the innermost `keras.StatelessScope` that is open, or None."""
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    return get_stateless_scope()


def disable_autocast(variable: keras.Variable) -> None:
    """Disables the conversion of `variable` to the compute dtype of its layer."""
    variable._autocast = False


def has_value(variable: keras.Variable) -> bool:
    """Returns whether `variable` has a value; inside a `keras.StatelessScope` its initialization is deferred."""
    return variable._value is not None


def initializer(variable: keras.Variable) -> Callable[..., Tensor]:
    """Returns the initializer of a variable that has no value yet."""
    return variable._initializer


def set_initializer(variable: keras.Variable, function: Callable[..., Tensor]) -> None:
    """Replaces the initializer of a variable that has no value yet by `function(shape, dtype)`."""
    variable._initializer = function


def initialize(variable: keras.Variable) -> None:
    """Gives a variable whose initialization is deferred the value of its initializer."""
    variable._deferred_initialize()


def initialize_with(variable: keras.Variable, value: Tensor) -> None:
    """Gives a variable whose initialization is deferred a value of its shape and dtype, in its layout on several devices."""
    variable._initialize(value)
    variable._initializer = None


@contextlib.contextmanager
def deferred_initialization() -> Iterator[None]:
    """Context in which new variables get no value, neither in it nor after it, before `initialize` is called on them."""
    from keras.src.backend.common import global_state

    before = list(global_state.get_global_attribute(_UNINITIALIZED, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        # Keras would initialize those created in the scope at its end, or at the end of the outermost one.
        global_state.set_global_attribute(_UNINITIALIZED, before)


# Masks of tensors.


def get_mask(x: Tensor) -> Tensor | None:
    """Returns the mask that Keras attached to a tensor, or None."""
    return getattr(x, "_keras_mask", None)


def set_mask(x: Tensor, mask: Tensor | None) -> None:
    """Attaches a mask to a tensor, where its class allows it and the mask is not None."""
    if mask is not None:
        with contextlib.suppress(AttributeError):
            x._keras_mask = mask


# Functional graphs.


def functional(model: keras.layers.Layer) -> Any:
    """Returns the Functional model in a built `Sequential`; anything else unchanged."""
    return getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model


def nodes_in_order(model: keras.Model) -> list[Any]:
    """Returns the nodes of a Functional model in the order of computation, without its inputs."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    return [node for depth in depths for node in model._nodes_by_depth[depth] if not node.is_input]


def is_graph(layer: keras.Operation) -> bool:
    """Returns whether calls of `layer` run the nodes of a Functional graph, and nothing else.

    A subclass whose `call` only prepares inputs says so with the class attribute `runs_graph`.
    """
    from keras.src.models.functional import Functional

    runs_graph = type(layer).call is Functional.call or getattr(type(layer), "runs_graph", False)
    return isinstance(layer, Functional) and runs_graph


def input_names(model: keras.Model) -> list[str]:
    """Returns the keys by which a Functional model takes a dict of inputs, in the order of `model.inputs`."""
    structure = model._inputs_struct
    keys = {id(each): key for key, each in structure.items()} if isinstance(structure, dict) else {}
    return [keys.get(id(each)) or producer(each).name for each in model.inputs]


def pack_inputs(model: keras.Model, tensors: Sequence[Tensor]) -> Any:
    """Returns tensors in the order of `model.inputs` as the structure with which a Functional model is called."""
    return keras.tree.pack_sequence_as(model._inputs_struct, list(tensors))


def fill_in(node: Any, values: Mapping[int, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a node, with values by the ids of symbolic tensors in their place."""
    return node.arguments.fill_in(values)


def first_argument(node: Any) -> Any:
    """Returns the symbolic tensors that a node's operation takes as its first argument."""
    return node.arguments.args[0] if node.arguments.args else next(iter(node.arguments.kwargs.values()))


@contextlib.contextmanager
def wrapped_calls(
    layers: Iterable[Any], wrap: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Context in which `call` of each layer is `wrap(layer, call)`.

    Not by `setattr`: Keras would look for variables in the function, and collect garbage when it is deleted.
    """
    layers = list(layers)
    before = [vars(layer).get("call") for layer in layers]
    try:
        for layer in layers:
            vars(layer)["call"] = wrap(layer, layer.call)
        yield
    finally:
        for layer, call in zip(layers, before, strict=True):
            del vars(layer)["call"]
            if call is not None:
                vars(layer)["call"] = call


def producer(tensor: keras.KerasTensor) -> keras.Operation:
    """Returns the operation that computes a symbolic tensor."""
    return tensor._keras_history.operation


def consumers(tensor: keras.KerasTensor) -> list[Any]:
    """Returns the nodes that take a symbolic tensor as input, in every model that was made of it."""
    return [
        node
        for node in producer(tensor)._outbound_nodes
        if any(tensor is each for each in keras.tree.flatten(node.input_tensors))
    ]


# Training.


def takes_training(model: keras.Model) -> bool:
    """Returns whether `model.call` has an argument `training`."""
    return model._call_has_training_arg


def run_train_function(model: keras.Model, batch: Any) -> dict[str, Tensor]:
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
    cls: Any = type(type(optimizer).__name__, (type(optimizer), stateless), {})
    # Automatic names depend on how many optimizers there were before.
    copy = cls.from_config({**optimizer.get_config(), "name": "optimizer"})
    kept = [each for each in variables if not optimizer._use_weight_decay(each)]
    if kept:
        copy.exclude_from_weight_decay(var_list=kept)
    copy.build(variables)
    return copy


def exchange_before_clipping(optimizer: Any) -> None:
    """Makes a TensorFlow optimizer sum gradients over the replicas of `tf.distribute` before it clips them, not after."""
    exchange, clip = optimizer._all_reduce_sum_gradients, optimizer._clip_gradients
    optimizer._all_reduce_sum_gradients = list

    def exchange_and_clip(gradients: Sequence[Tensor]) -> list[Tensor]:
        return clip([total for total, _ in exchange([(gradient, None) for gradient in gradients])])

    optimizer._clip_gradients = exchange_and_clip


def create_accumulators_of_replicas(optimizer: Any) -> None:
    """Makes an optimizer that is not built create accumulators of gradients that each replica changes by itself.

    Outside of replicas, such as in a checkpoint, the value of one is the sum over the replicas.
    """
    create = optimizer.add_variable_from_reference

    def add_variable_from_reference(
        reference_variable: keras.Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
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


def gradient_accumulators(optimizer: Any, variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """Returns the accumulators of the gradients of variables."""
    return [optimizer._accumulated_gradients[optimizer._get_variable_index(variable)] for variable in variables]


def update_weights(optimizer: Any, gradients: Sequence[Tensor], variables: Sequence[keras.Variable]) -> None:
    """Clips gradients and updates weights, as an optimizer that does not accumulate gradients does."""
    gradients = optimizer._clip_gradients(gradients)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)


def update_averages(optimizer: Any) -> None:
    """Updates the moving averages of the weights, of an optimizer with `use_ema`."""
    optimizer._update_model_variables_moving_average(optimizer._trainable_variables)


def replace_update(optimizer: Any, function: Callable[[list[Tensor], list[keras.Variable]], None]) -> None:
    """Replaces the method by which `apply` updates weights, and accumulates gradients, by unscaled gradients."""
    optimizer._backend_apply_gradients = function


def variable_index(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """Returns the index of a variable among those that a built optimizer trains."""
    return optimizer._get_variable_index(variable)


def wrap_symbolic_build(model: keras.Model, wrapper: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replaces the method by which `model.fit` builds metrics and optimizer from a first batch.

    Args:
        model: `keras.Model`.
        wrapper: function of that method, whose arguments are `iterator` and `data_batch`, to the new one.
    """
    model._maybe_symbolic_build = wrapper(model._maybe_symbolic_build)


def symbolic_build(model: keras.Model, batch: Any) -> None:
    """Builds the metrics and the optimizer of a compiled model for a batch, `(x, y)` or more, as `fit` does."""
    model._symbolic_build(data_batch=batch)
