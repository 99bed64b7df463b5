"""What a model has beside its inputs: the states of stateful layers, which files take and return, and random numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import output_axes, sizes_of
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.graph.operation_origin import PYTHON, locator
from keras_transformer.export.spec.probes import probe_of_sizes
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import ArrayLike, Shape, Tensor

# The operations that draw other random numbers in each call.
_DRAW = re.compile("RngReadAndSkip|Random|Stateful.*(Normal|Uniform)|(Parameterized)?TruncatedNormal|Multinomial")
# Of random inputs, the distribution.
Draws: TypeAlias = dict[ArraySpec, str]
# A signature: from named tensors to named tensors.
Function: TypeAlias = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def stateful_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers in a model, or the layer itself, with `stateful=True`."""
    return [each for each in keras_private.flatten_layers(model) if getattr(each, "stateful", False)]


def states_of(model: keras.Model, taken: Iterable[str]) -> dict[str, keras.Variable]:
    """The variables in which the layers of a model with `stateful=True` keep their states.

    Args:
        model: a built model.
        taken: names that are in use.

    Returns:
        Dict of a name, `state`, or `state_0`, `state_1`, ..., to a variable, in the order of the layers.
    """
    found = {
        id(variable): variable
        for layer in stateful_layers(model)
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


def with_zeros(
    probes: Sequence[Mapping[str, ArrayLike]] | None, inputs: Sequence[ArraySpec], states: Container[str]
) -> Sequence[Mapping[str, ArrayLike]] | None:
    """The arrays of the user, with states of zeros where they have none."""
    zeros = {each.name: np.zeros(each.shape, each.dtype) for each in inputs if each.name in states}
    own = {each.name for each in inputs} - zeros.keys()
    return probes and [{**zeros, **each} if set(each) & own else each for each in probes]


def with_drawn_inputs(signature: Signature) -> Signature:
    """A signature whose random numbers are inputs; the same one where that cannot be."""
    draws = _draws_of(signature.function, [probe.inputs for probe in signature.probes], signature.inputs)
    found = []
    for probe in signature.probes:
        sizes = sizes_of(signature.inputs, probe.inputs)
        drawn = probe_of_sizes(list(draws), {}, sizes, padded=False).inputs
        found.append(Probe(probe.inputs | drawn, probe.label))
    return dataclasses.replace(
        signature,
        function=with_draws(signature.function, [each.name for each in draws]),
        inputs=(*signature.inputs, *draws),
        probes=found,
        draws={each.name: kind for each, kind in draws.items()},
    )


def _draws_of(function: Function, probes: Sequence[Mapping[str, np.ndarray]], inputs: Sequence[ArraySpec]) -> Draws:
    """The random numbers that a model draws in a call, as inputs.

    Args:
        function: the inference of the model.
        probes: its inputs, in several sizes.
        inputs: tuple of `ArraySpec` of these.

    Returns:
        Dict of the `ArraySpec` of each draw to its distribution, `"normal"` or `"uniform"`; empty where calls do not draw
        the same ones, or sizes that are not those of the inputs.
    """
    calls = [_drawn(function, arrays) for arrays in probes]
    kinds = [[(kind, len(shape)) for kind, shape in call] for call in calls]
    sizes = [sizes_of(inputs, arrays) for arrays in probes]
    taken, found = {each.name for each in inputs}, dict[ArraySpec, str]()
    if any(each != kinds[0] for each in kinds):
        return {}
    for number, (kind, _) in enumerate(kinds[0]):
        shapes = [call[number][1] for call in calls]
        shape = tuple(each[0] if len(set(each)) == 1 else None for each in zip(*shapes, strict=True))
        same = [position for position, (other, _) in enumerate(kinds[0]) if other == kind]
        name = f"{kind}_noise_{same.index(number)}" if len(same) > 1 else f"{kind}_noise"
        axes = output_axes(name, shape, list(zip(sizes, shapes, strict=True)))
        if name in taken or any(axis and axis not in sizes[0] for axis in axes):
            return {}
        found[ArraySpec(name, "float32", shape, axes)] = kind
    return found


def _drawn(function: Function, arrays: Mapping[str, np.ndarray]) -> list[tuple[str, Shape]]:
    """The distribution and the shape of each draw of a call."""
    found: list[tuple[str, Shape]] = []
    random = np.random.default_rng(0)

    def draw(kind: str, shape: Shape) -> Tensor:
        found.append((kind, tuple(map(int, shape))))
        return keras.ops.convert_to_tensor(random.random(found[-1][1]), "float32")

    with keras_private.replaced_draws(draw):
        function({name: keras.ops.convert_to_tensor(array) for name, array in arrays.items()})
    return found


def with_draws(function: Function, names: Sequence[str]) -> Function:
    """A function that takes the random numbers of a model as inputs, in the order in which it draws them."""

    def called(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        given = iter([tensors[name] for name in names])
        with keras_private.replaced_draws(lambda kind, shape: next(given)):
            return function({name: each for name, each in tensors.items() if name not in names})

    return called


def warn_of_training(model: keras.Model) -> None:
    """Warns of layers that the graph of a Functional model calls with `training=True`, which files do not."""
    if training := layers_in_training(model):
        warnings.warn(
            f"files, like `predict`, compute the layers {', '.join(training)} with training=False, though the model calls"
            " them with training=True: for other values in each call, make random numbers an input of the model",
            stacklevel=3,
        )


def layers_in_training(model: keras.Model) -> list[str]:
    """Names of the layers that the graph of a Functional model calls with `training=True`.

    Those of which it is the default, as of the preprocessing of images, are left out: Keras itself puts it there.
    """
    found: list[str] = []
    for node in keras_private.nodes_in_order(model):
        inner = keras_private.functional(node.operation)
        if keras_private.named_arguments(node).get("training") is True and not _trains_by_default(node.operation):
            found.append(node.operation.name)
        elif isinstance(inner, keras.Model) and keras_private.is_graph(inner):
            found += layers_in_training(inner)
    return found


def _trains_by_default(operation: keras.Operation) -> bool:
    training = inspect.signature(operation.call).parameters.get("training")
    return training is not None and training.default is True


def changes_in_a_call(model: keras.Model, signature: Signature) -> str:
    """What a model changes when it is called, in words, for the error of one that computes other values each time.

    Args:
        model: a built model.
        signature: `Signature` that calls it, with a probe.
    """
    with keras.StatelessScope() as scope:
        signature.function(
            {name: keras.ops.convert_to_tensor(each) for name, each in signature.probes[0].inputs.items()}
        )
    for layer in reversed(keras_private.flatten_layers(model)):
        if any(scope.get_current_value(each.state) is not None for each in keras_private.seed_generators(layer)):
            return f"layer '{layer.name}' ({type(layer).__name__}) draws random numbers in inference too"
        for variable in layer.variables:
            if scope.get_current_value(variable) is not None and "seed_generator" not in variable.path:
                return f"layer '{layer.name}' ({type(layer).__name__}) changes its variable '{variable.name}'"
    return _draws_of_tensorflow(model, signature)


def _draws_of_tensorflow(model: keras.Model, signature: Signature) -> str:
    """Which layer draws random numbers by operations of TensorFlow that `keras.random` does not use, in words."""
    from keras_transformer.export.graph.part import every_node
    from keras_transformer.export.graph.repeated_layers import RepeatedLayers
    from keras_transformer.export.graph.traced_graph import concrete_function

    locate = locator(model)
    with contextlib.suppress(*library_exceptions()):
        function = concrete_function("serve", signature, (), RepeatedLayers(()))
        for node in every_node(function.graph.as_graph_def()):
            if _DRAW.match(node.op):
                return f"layer '{locate(node.op, node.name)}' draws random numbers by {node.op} of TensorFlow"
            if node.op in PYTHON:
                return f"layer '{locate(node.op, node.name)}' calls a function of Python, by {node.op}"
    return "it draws random numbers by functions of Python"
