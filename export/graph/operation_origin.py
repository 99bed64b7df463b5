"""The origin of an operation of a traced graph: the layer that it came from."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import keras

from keras_transformer.backend import keras_private

# The operations that call a function of Python.
PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


def layer_of(
    op: str, node: str, layers: Mapping[str, keras.layers.Layer], operations: Sequence[keras.Operation] = ()
) -> str:
    """Name of the layer that made a graph node.

    Keras opens a name scope for every layer, so a node is named `functional_1/encoder_1/attention_1/Softmax`: a scope
    is a layer's name, perhaps with a number that TensorFlow added. The innermost scope of a layer counts. Ops of
    `keras.ops` called in the functional graph itself open no scope and are matched by their type.

    Args:
        op: TensorFlow type of the op, such as `"Erf"`.
        node: full name of the node.
        layers: dict of layer name to layer.
        operations: the functional graph's operations that are not layers.

    Returns:
        The name of the layer or operation; the node's own scope when none matches.
    """
    scopes = node.split("/")[:-1]
    for scope in reversed(scopes):
        for name in (scope, re.sub(r"_\d+$", "", scope)):
            if name in layers and _holds_ops(layers[name]):
                return name
    for operation in operations:
        if type(operation).__name__.lower() == op.lower():
            return operation.name
    return "/".join(scopes) or node


def _holds_ops(layer: keras.layers.Layer) -> bool:
    """Whether a layer computes itself: a nested model opens a scope, but its layers do the computing."""
    return not hasattr(layer, "operations")


def locator(model: keras.Model, has_operations: bool = True) -> Callable[[str, str], str]:
    """The function from an op's type and a node's name to the name of its layer, as `ExportSpec` takes it.

    Args:
        model: `keras.Model`.
        has_operations: bool. Whether the graph is that of a Functional model, with its ops of `keras.ops`.
    """
    layers = {layer.name: layer for layer in keras_private.flatten_layers(model, include_self=False)}
    found: Iterable[keras.Operation] = model.operations if has_operations else ()
    operations = [each for each in found if not isinstance(each, keras.layers.Layer)]
    return lambda op, node: layer_of(op, node, layers, operations)
