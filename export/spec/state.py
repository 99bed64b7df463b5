"""State that a call of a model changes: that of stateful layers, which files take and return, and of random generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.utils.types import Tensor

# A signature: from named tensors to named tensors.
Function: TypeAlias = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def states_of(model: keras.Model, taken: Iterable[str]) -> dict[str, keras.Variable]:
    """The variables in which the layers of a model with `stateful=True` keep their states.

    Args:
        model: a built model.
        taken: names that are in use.

    Returns:
        Dict of a name, `state`, or `state_0`, `state_1`, ..., to a variable, in the order of the layers.
    """
    layers = [each for each in keras_private.flatten_layers(model) if getattr(each, "stateful", False)]
    found = {
        id(variable): variable
        for layer in layers
        for variable in keras.tree.flatten(getattr(layer, "states", None))
        if isinstance(variable, keras.Variable)
    }
    names = ["state"] if len(found) == 1 else [f"state_{number}" for number in range(len(found))]
    taken = set(taken)
    return {f"layer_{name}" if name in taken else name: each for name, each in zip(names, found.values(), strict=True)}


def state_specs(states: Mapping[str, keras.Variable]) -> tuple[ArraySpec, ...]:
    """The inputs of a signature that are states."""
    return tuple(
        ArraySpec(name, str(each.dtype), tuple(each.shape), (None,) * len(each.shape)) for name, each in states.items()
    )


def with_states(function: Function, states: Mapping[str, keras.Variable]) -> Function:
    """A function that takes and returns states, instead of that of a model, whose variables it does not change.

    Args:
        function: the inference of the model.
        states: as `states_of` returns them.
    """
    if not states:
        return function

    def called(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        scope = keras_private.stateless_scope()  # That of a trace has the weights.
        with contextlib.nullcontext(scope) if scope else keras.StatelessScope() as scope:
            for name, variable in states.items():
                scope.add_update((variable, tensors[name]))
            outputs = function({name: each for name, each in tensors.items() if name not in states})
            return outputs | {name: scope.get_current_value(variable) for name, variable in states.items()}

    return called


def layers_in_training(model: keras.Model) -> list[str]:
    """Names of the layers that the graph of a Functional model calls with `training=True`."""
    found: list[str] = []
    for node in keras_private.nodes_in_order(model):
        inner = keras_private.functional(node.operation)
        if keras_private.named_arguments(node).get("training") is True:
            found.append(node.operation.name)
        elif isinstance(inner, keras.Model) and keras_private.is_graph(inner):
            found += layers_in_training(inner)
    return found


def changes_in_a_call(model: keras.Model, call: Callable[[], object]) -> str:
    """What a model changes when it is called, in words, for the error of one that computes other values each time.

    Args:
        model: a built model.
        call: calls it.
    """
    with keras.StatelessScope() as scope:
        call()
    for layer in reversed(keras_private.flatten_layers(model)):
        if any(scope.get_current_value(each.state) is not None for each in keras_private.seed_generators(layer)):
            return f"layer '{layer.name}' ({type(layer).__name__}) draws random numbers in inference too"
        for variable in layer.variables:
            if scope.get_current_value(variable) is not None and "seed_generator" not in variable.path:
                return f"layer '{layer.name}' ({type(layer).__name__}) changes its variable '{variable.name}'"
    return "it draws random numbers by functions of TensorFlow"
