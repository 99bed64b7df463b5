"""The writer of ONNX files: tf2onnx with additional handlers."""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import tensorflow as tf

from keras_transformer.export.bundle.metadata import DESCRIPTION, file_entries
from keras_transformer.export.data.manifest import PRODUCER
from keras_transformer.export.errors import ConversionError
from keras_transformer.export.graph.interface_names import output_names
from keras_transformer.export.graph.traced import weight_arrays, weight_names
from keras_transformer.export.onnx.freeze import freeze
from keras_transformer.export.onnx.graph import all_nodes, name_of
from keras_transformer.export.onnx.options import PLAIN_OPSET as OPSET
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.fold_weights import fold_weights
from keras_transformer.export.onnx.passes.loop_invariants import hoist_invariants
from keras_transformer.export.onnx.passes.recurrent_operators import operator_part
from keras_transformer.export.onnx.passes.repeated_parts import Ends, OpaqueLayers, insert_parts, with_opaque_layers
from keras_transformer.export.onnx.passes.simplify import simplify
from keras_transformer.export.onnx.preprocessing import put_inside
from keras_transformer.export.onnx.rewriters import failed_nodes, only_needed
from keras_transformer.export.onnx.weights.files import FILE as WEIGHTS
from keras_transformer.export.onnx.weights.files import WeightsFile
from keras_transformer.export.onnx.weights.files import write as write_file
from keras_transformer.export.operations.layers import BY_FORMAT
from keras_transformer.export.operations.lowering import lowered
from keras_transformer.export.operations.recurrence import has_operators
from keras_transformer.export.operations.table import native_builders, unsupported
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.generation_record import STATIC_LENGTH
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.version import __version__

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec, Signature
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.graph.traced_graph import TracedGraph

_MAX_BYTES = 2**31 - 2**20
_MAX_INLINE = 1_900_000_000


def write(traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
    """Writes `model.onnx`, or `model.NAME.onnx` for each of several signatures that share a file of weights.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from; its `onnx` is an `OnnxOptions`, or None for the defaults.
        directory: `pathlib.Path` to write into.

    Returns:
        Dict of signature name to the path of its file, relative to `directory`.

    Raises:
        UnsupportedOpError: a TensorFlow op has no counterpart in ONNX.
        ConversionError: the converter fails, the file is invalid, or weights that are not Keras variables exceed 2 GB.
    """
    options = spec.onnx or OnnxOptions()
    if spec.target is not None:  # Accelerators have few of the contrib operators.
        options = dataclasses.replace(options, cached_attention=False)
    if not spec.variables and traced.weight_bytes > _MAX_BYTES:
        size = traced.weight_bytes / 1e9
        raise ConversionError(ONNX, f"the weights are {size:.1f} GB, and the spec does not name its variables")
    _number_names_from_one()
    names, files = spec.names(ONNX), {}
    arrays = weight_arrays(spec.variables)
    is_shared = len(names) > 1 or sum(array.nbytes for array in arrays.values()) > _MAX_INLINE
    weights = WeightsFile(directory / WEIGHTS) if is_shared else None
    for name in names:
        files[name] = "model.onnx" if len(names) == 1 else f"model.{name}.onnx"
        path = directory / files[name]
        model = _convert(traced, spec, name)
        found = fold_weights(model, arrays)
        if options.optimize:
            model = _optimized(model, options, found)
        if name in spec.preprocessed:
            put_inside(model, spec.preprocessed[name])
        if spec.target is not None:
            spec.target.rewrite(model, (spec.generation or {}).get(STATIC_LENGTH))
        describe(model, spec.metadata)
        write_file(model, path, weights)
        _check(path)
    return files


def _number_names_from_one() -> None:
    """Lets an export give the same bytes whatever the process has converted before: tf2onnx counts on in its names."""
    import tf2onnx.tfonnx  # It makes names while it is imported.
    import tf2onnx.utils

    tf2onnx.utils.INTERNAL_NAME = 1


def _optimized(model: ir.Model, options: OnnxOptions, weights: Sequence[str]) -> ir.Model:
    """The optimized graph; the unchanged graph, with a warning, if the optimization fails.

    Rules raise a `ValueError` where a graph is not as they expect, and the libraries a `RuntimeError`.
    """
    from keras_transformer.export.onnx.passes.optimize import optimize

    optimized = model.clone()
    try:
        with captured():  # The libraries log each operator that they leave as it is.
            optimize(optimized, options, weights)
    except (ValueError, RuntimeError) as error:  # The unchanged graph is correct.
        warnings.warn(f"onnx: the graph is not optimized: {one_line(error)}", stacklevel=2)
        return model
    return optimized


def _convert(traced: TracedModule, spec: ExportSpec, name: str) -> ir.Model:
    """The graph of one signature, with its weights as inputs."""
    with captured() as log, failed_nodes() as failed:
        try:
            model = _to_onnx(traced, spec, name)
        except library_exceptions() as error:
            raise ConversionError(ONNX, error, log(), Remedy.FORMAT) from error
    _check_unsupported(model, spec.locate, failed)
    hoist_invariants(model)
    _order_inputs(model.graph, spec.signatures[name])
    _name_axes(model.graph, spec.signatures[name])
    return model


def _check(path: pathlib.Path) -> None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except library_exceptions() as error:
        raise ConversionError(ONNX, error, remedy=Remedy.FORMAT) from error


def _to_onnx(traced: TracedModule, spec: ExportSpec, name: str) -> ir.Model:
    """Converts the graph of a signature. Inputs and outputs keep their names; further inputs are weights."""
    graph = traced.graphs[name]
    if not graph.captures and has_operators(spec.layers):
        graph = traced.traced_again(name, BY_FORMAT[ONNX])
    graph = lowered(graph, ONNX, spec.locate, is_outlined=not graph.captures)
    labels = weight_names(spec.variables) | _output_labels(spec.signatures[name])
    if graph.captures:
        model = _converted(graph, labels)
    else:
        graph, layers = with_opaque_layers(graph)
        model = _converted(graph, labels)
        _insert_layers(model, layers)
    simplify(model)
    return model


def _insert_layers(model: ir.Model, layers: OpaqueLayers) -> None:
    """Puts what the layers of a graph become in the place of their opaque operations."""
    natives = {key: operator_part(function) for key, function in layers.native.items()}
    repeated: dict[str, tuple[Ends, ir.Model]] = {}
    for key, part in layers.repeated.items():
        repeated[key] = Ends((*part.inputs, *part.weights), list(part.outputs)), _converted(part, {})
    for _, layer in repeated.values():
        insert_parts(layer, natives, "operator")
        simplify(layer)
    insert_parts(model, repeated, "repeated_layer")
    insert_parts(model, natives, "operator")


def _converted(graph: TracedGraph, labels: Mapping[str, str]) -> ir.Model:
    """Converts the frozen graph with tf2onnx.

    Args:
        graph: `TracedGraph`.
        labels: dict of the name of a weight or an output to its name in the file.
    """
    from tf2onnx import tfonnx

    frozen = freeze(graph)
    inputs = {tensor: labels.get(key, key) if key in graph.weights else key for key, tensor in frozen.inputs.items()}
    outputs = {tensor: labels.get(key, key) for key, tensor in frozen.outputs.items()}
    with tf.Graph().as_default() as imported, only_needed():
        tf.import_graph_def(frozen.graph_def, name="")
        converted = tfonnx.process_tf_graph(
            imported,
            continue_on_error=True,
            opset=OPSET,
            custom_op_handlers={op: (build, []) for op, build in native_builders(ONNX).items()},
            input_names=list(inputs),
            output_names=list(outputs),
            tensors_to_rename=inputs | outputs,
        )
    return ir.from_proto(converted.make_model("keras_transformer"))


def _output_labels(signature: Signature) -> dict[str, str]:
    """The names of the outputs in the file."""
    return output_names([each.name for each in signature.inputs], [each.name for each in signature.outputs])


def _check_unsupported(model: ir.Model, locate: Any, failed: Mapping[str, BaseException]) -> None:
    """Raises for ops that tf2onnx left in the graph under their TensorFlow names: it has none, or has failed there."""
    found: dict[tuple[str, str], str] = {}
    for node in all_nodes(model.graph):
        error = _failure(node.name or "", failed)
        if error or node.domain not in ("", "ai.onnx.ml") or not onnx.defs.has(node.op_type, OPSET, ""):
            found[node.op_type, locate(node.op_type, node.name)] = "" if error is None else one_line(error)
    if found:
        reason = next(iter(found.values()))
        raise unsupported(ONNX, list(found), f"tf2onnx fails: {reason}" if reason else "")


def _failure(name: str, failed: Mapping[str, BaseException]) -> BaseException | None:
    """Why tf2onnx could not convert a node, which has the name of a branch in front in the body of that."""
    found = (error for each, error in failed.items() if name == each or name.endswith(f"_{each}"))
    return next(found, None)


def _order_inputs(graph: ir.Graph, signature: Signature) -> None:
    """Puts the inputs in the order of the signature, before the weights."""
    position = {spec.name: number for number, spec in enumerate(signature.inputs)}
    ordered = sorted(graph.inputs, key=lambda value: position.get(name_of(value), len(position)))
    graph.inputs.clear()
    graph.inputs.extend(ordered)


def _name_axes(graph: ir.Graph, signature: Signature) -> None:
    """Sets the names of the dynamic axes, instead of `unk__12` of tf2onnx."""
    labels = _output_labels(signature)
    specs = {spec.name: spec for spec in signature.inputs} | {labels[spec.name]: spec for spec in signature.outputs}
    for value in (*graph.inputs, *graph.outputs):
        spec = specs.get(name_of(value))
        if spec is not None:  # Others are weights.
            sizes = spec.shape if value.shape is None else value.shape
            value.shape = ir.Shape([axis or size for axis, size in zip(spec.axes, sizes, strict=True)])


def describe(model: ir.Model, metadata: Mapping[str, Any]) -> None:
    """Writes metadata into a model: `producer_name`, `producer_version`, `doc_string`, `metadata_props`.

    Args:
        model: `onnx_ir.Model`, changed in place.
        metadata: dict of JSON values; each is an entry of `metadata_props`.
    """
    model.producer_name, model.producer_version = PRODUCER, __version__
    model.doc_string = metadata.get(DESCRIPTION, "")
    model.metadata_props.clear()
    model.metadata_props.update(file_entries(dict(metadata)))
