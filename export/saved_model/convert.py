"""Conversion to SavedModel."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.errors import ConversionError
from keras_transformer.export.graph.part import every_node
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.graph.traced_graph import TracedGraph
from keras_transformer.export.operations.computing import COMPUTING
from keras_transformer.export.operations.lowering import lowered
from keras_transformer.export.operations.table import unsupported
from keras_transformer.export.runtime.libraries import SAVED_MODEL
from keras_transformer.utils.captured_stderr import captured


def write(traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
    """Writes `saved_model/` with one signature per entry of the spec.

    The first signature is also saved as `serving_default`, the default name of servers.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from.
        directory: `pathlib.Path` to write into.

    Returns:
        Dict of signature name to the path, of its file, relative to `directory`.

    Raises:
        UnsupportedOpError: an operation does more than compute.
        ConversionError: TensorFlow cannot save the graphs.
    """
    names = spec.names(SAVED_MODEL)
    for name in names:
        _check_operations(traced.graphs[name], spec.locate)
    graphs = {name: lowered(traced.graphs[name], SAVED_MODEL, spec.locate, is_outlined=True) for name in names}
    write_signatures(traced.with_graphs(graphs), names, directory / SAVED_MODEL)
    return dict.fromkeys(names, SAVED_MODEL)


def _check_operations(graph: TracedGraph, locate: Callable[[str, str], str]) -> None:
    """Refuses operations with which a SavedModel would not be loaded again, since they do more than compute."""
    functions = {each.signature.name for each in graph.graph_def.library.function}  # Some are called by their names.
    found = {(node.op, locate(node.op, node.name)): None for node in every_node(graph.graph_def)}
    effects = [each for each in found if each[0] not in COMPUTING and each[0] not in functions]
    if effects:
        raise unsupported(SAVED_MODEL, effects, "it may do more than compute")


def write_signatures(traced: TracedModule, names: Sequence[str], path: pathlib.Path) -> None:
    """Writes a SavedModel with some signatures of a `TracedModule`, which read the variables of the model."""
    # A Keras model is not made an attribute: TensorFlow would then trace its own default signature too.
    module: tf.Module = tf.Module(name="exported")
    module.exported_variables, module.exported_modules = traced.exported_variables, traced.exported_modules
    save(module, {name: traced.function(name) for name in names}, path)


def save(module: tf.Module, functions: Mapping[str, object], path: pathlib.Path) -> None:
    """Writes a SavedModel, with the first of its functions as `serving_default` too.

    Args:
        module: owner of the variables and resources of the functions.
        functions: dict of signature name to concrete function.
        path: folder to write.

    Raises:
        ConversionError: TensorFlow cannot save the graphs.
    """
    signatures = {**functions}
    signatures.setdefault("serving_default", next(iter(functions.values())))
    with captured() as log:
        try:
            tf.saved_model.save(module, str(path), signatures=signatures)
        except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
            raise ConversionError(SAVED_MODEL, error, log()) from error
