"""Why a signature has no graph that a file could contain: the layer at fault, and what to do about it."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence

import keras

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Signature, Structure
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import PYTHON
from keras_transformer.export.graph.part import every_node
from keras_transformer.export.graph.repeated_layers import RepeatedLayers
from keras_transformer.export.graph.replaced_layers import methods_set
from keras_transformer.export.graph.traced_graph import TracedGraph, concrete_function
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.errors import library_exceptions, one_line


def untraceable(
    name: str,
    signature: Signature,
    variables: Sequence[keras.Variable],
    layers: Sequence[keras.layers.Layer],
    error: Exception,
) -> InvalidModelError:
    """The error of a signature that cannot be traced.

    It is traced once more with the sizes of a probe: where that succeeds, the sizes are the cause.

    Args:
        name: of the signature.
        signature: `Signature`.
        variables: the Keras variables that its function reads.
        layers: the layers that it calls.
        error: what was raised.
    """
    trace = functools.partial(concrete_function, name, variables=variables, repeated=RepeatedLayers(()))
    layer = _failing_layer(layers, lambda: trace(signature))
    where = "" if layer is None else f", because of layer '{layer.name}'"
    text = f"signature '{name}' cannot be traced{where}: {one_line(error)}"
    fixed = _of_fixed_sizes(signature)
    if fixed != signature.inputs and not _fails(lambda: trace(dataclasses.replace(signature, inputs=fixed))):
        return InvalidModelError(text, Remedy.FIXED, inputs=_written(signature.structure, fixed))
    return InvalidModelError(text, Remedy.PYTHON if "numpy" in text.lower() else Remedy.VALUES)


def check_is_graph(graph: TracedGraph, locate: Callable[[str, str], str]) -> None:
    """Refuses a graph that computes with functions of Python.

    Args:
        graph: `TracedGraph`.
        locate: the layer that an operation came from, of the name of the operation and that of the node.

    Raises:
        InvalidModelError: names the layer.
    """
    for node in every_node(graph.graph_def):
        if node.op in PYTHON and node.attr["Tout"].list.type:
            layer = locate(node.op, node.name)
            raise InvalidModelError(f"layer '{layer}' calls a function of Python, by {node.op}", Remedy.PYTHON)


def _fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except library_exceptions(ImportError):
        return True
    return False


def _failing_layer(layers: Sequence[keras.layers.Layer], call: Callable[[], object]) -> keras.layers.Layer | None:
    """The innermost layer whose call fails in this thread; None if none does."""
    thread, failed = threading.get_ident(), list[keras.layers.Layer]()

    def noted(layer: keras.layers.Layer) -> Callable[..., object]:
        original = layer.call

        @functools.wraps(original)
        def called(*args: object, **kwargs: object) -> object:
            try:
                return original(*args, **kwargs)
            except library_exceptions(ImportError):
                if threading.get_ident() == thread:
                    failed.append(layer)
                raise

        return called

    with methods_set([(layer, "call", noted(layer)) for layer in layers]):
        _fails(call)
    return failed[0] if failed else None


def _of_fixed_sizes(signature: Signature) -> tuple[ArraySpec, ...]:
    """The inputs of a signature with the sizes of its first probe."""
    arrays = signature.probes[0].inputs if signature.probes else {}
    return tuple(
        dataclasses.replace(each, shape=arrays[each.name].shape) if each.name in arrays else each
        for each in signature.inputs
    )


def _written(structure: Structure, inputs: Sequence[ArraySpec]) -> str:
    """Inputs as `ExportOptions(inputs=...)` takes them, in Python."""
    if isinstance(structure, Mapping):
        return "{" + ", ".join(f"{key!r}: {_written(each, inputs)}" for key, each in structure.items()) + "}"
    if isinstance(structure, str):
        spec = next(each for each in inputs if each.name == structure)
        dtype = "" if spec.dtype == "float32" else f", dtype={spec.dtype!r}"
        return f"keras.InputSpec(shape={spec.shape}{dtype})"
    return "[" + ", ".join(_written(each, inputs) for each in structure or [each.name for each in inputs]) + "]"
