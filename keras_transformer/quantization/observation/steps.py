"""The nodes of a Functional model in their order, those of models inside it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import keras

from keras_transformer.backend import keras_private

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node

# A symbolic tensor, in one of the calls of the model that it belongs to.
Key = tuple[int, int]


class Step(NamedTuple):
    """A node of a graph.

    Attributes:
        operation: the layer or operation.
        node: the node, which has its arguments.
        inputs: dict of id of a symbolic tensor to its key, in the order of the arguments.
        outputs: list of keys.
    """

    operation: keras.Operation
    node: Node
    inputs: Mapping[int, Key]
    outputs: list[Key]

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The layer itself and those in it."""
        is_layer = isinstance(self.operation, keras.layers.Layer)
        return keras_private.flatten_layers(self.operation) if is_layer else []


def steps_of(model: keras.Model) -> tuple[dict[str, Key], list[Step]]:
    """The steps of a Functional model.

    Returns:
        `(inputs, steps)`: dict of the name of an input to its key, and list of `Step`.

    Example:

    >>> inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="one"), keras.layers.Dense(4, name="two")])
    >>> x = keras.Input((4,))
    >>> model = keras.Model(x, inner(inner(x)))
    >>> [step.operation.name for step in steps_of(model)[1]]
    ['one', 'two', 'one', 'two']
    """
    aliases: dict[Key, Key] = {}
    steps = list(_expanded(model, [0], aliases))
    names = keras_private.input_names(model)
    return {name: (0, id(tensor)) for name, tensor in zip(names, model.inputs, strict=True)}, steps


def _expanded(model, counter: list[int], aliases) -> Iterator[Step]:
    call = counter[0]

    def key_of(tensor):
        key = (call, id(tensor))
        while key in aliases:
            key = aliases[key]
        return key

    for node in keras_private.nodes_in_order(model):
        inputs = {id(tensor): key_of(tensor) for tensor in node.input_tensors}
        inner = keras_private.functional(node.operation)
        if keras_private.is_graph(inner) and len(inputs) == len(inner.inputs):
            counter[0] += 1
            own = counter[0]
            for tensor, given in zip(inner.inputs, _in_order(inner, node), strict=True):
                aliases[own, id(tensor)] = inputs[id(given)]
            yield from _expanded(inner, counter, aliases)
            for tensor, output in zip(node.outputs, inner.outputs, strict=True):
                aliases[call, id(tensor)] = (own, id(output))
            continue
        yield Step(node.operation, node, inputs, [(call, id(tensor)) for tensor in node.outputs])


def _in_order(inner, node):
    """The symbolic tensors that a model is called with, in the order of its inputs."""
    given = keras_private.first_argument(node)
    names = keras_private.input_names(inner)
    return [given[name] for name in names] if isinstance(given, Mapping) else keras.tree.flatten(given)
