"""Self-tests of the private attributes of Functional models."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, dense, expect, nested

CHECKS = SelfTests()


@CHECKS.of("Sequential._functional")
def _functional() -> None:
    expect(tuple(private.functional(nested()).inputs[0].shape), (None, 3))


@CHECKS.of("Layer._tracker.config")
def _has_own_input() -> None:
    deferred = keras.Sequential([dense()])
    deferred.build((1, 3))
    expect([private.has_own_input(each) for each in (nested(), deferred)], [True, False])


@CHECKS.of("Functional._nodes_by_depth")
def _nodes_in_order() -> None:
    nodes = private.nodes_in_order(private.functional(nested()))
    expect([node.operation.name for node in nodes], ["a", "b"])


def _named_inputs() -> keras.Model:
    """A model of a dict whose keys are neither the names of the inputs nor sorted like them."""
    inputs = {"z": keras.Input((1,), name="first"), "a": keras.Input((1,), name="second")}
    return keras.Model(inputs, keras.layers.Subtract(name="difference")([inputs["z"], inputs["a"]]))


@CHECKS.of("Functional, Functional._inputs_struct")
def _inputs_struct() -> None:
    model = _named_inputs()
    expect([private.is_graph(each) for each in (model, dense())], [True, False])
    names = private.input_names(model)
    expect({name: tensor.name for name, tensor in zip(names, model.inputs, strict=True)}, {"z": "first", "a": "second"})
    packed = private.pack_inputs(model, [5.0 if name == "z" else 2.0 for name in names])
    expect(packed, {"z": 5.0, "a": 2.0})
    expect(private.input_names(private.functional(keras.Sequential([keras.Input((3,), name="x"), dense()]))), ["x"])


@CHECKS.of("Node.arguments")
def _arguments() -> None:
    (node,) = private.nodes_in_order(_named_inputs())
    first, second = private.first_argument(node)
    expect([first.name, second.name], ["first", "second"])
    arguments, options = private.fill_in(node, {id(first): 5.0, id(second): 2.0})
    expect((list(arguments[0]), options), ([5.0, 2.0], {}))
    x = keras.Input((3,))
    (node,) = private.nodes_in_order(keras.Model(x, keras.layers.Dropout(0.5)(x, training=True)))
    expect(private.named_arguments(node), {"training": True})


@CHECKS.of("KerasTensor._keras_history, Operation._inbound_nodes, Operation._outbound_nodes")
def _graph() -> None:
    source = keras.Input((3,))
    first = keras.layers.Dense(2, name="first")(source)
    second = keras.layers.Dense(2, name="second")(first)
    expect(private.producer(second).name, "second")
    expect([node.operation.name for node in private.consumers(first)], ["second"])
    expect([each is first for each in private.inputs_of(second)], [True])
    expect(private.inputs_of(source), [])
