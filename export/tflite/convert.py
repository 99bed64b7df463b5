"""The writer of TFLite (LiteRT) files, with built-in ops only, so that they run in an interpreter without delegates."""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_transformer.export.errors import ConversionError, ExportError, UnsupportedOpError
from keras_transformer.export.graph.part import every_node
from keras_transformer.export.operations.layers import BY_FORMAT
from keras_transformer.export.operations.lowering import lowered
from keras_transformer.export.operations.table import OPERATIONS, unsupported
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import SAVED_MODEL, TFLITE
from keras_transformer.export.saved_model import convert as saved_model
from keras_transformer.export.tflite.input_weights import InputWeights
from keras_transformer.export.tflite.passes.cache_slices import write_slices
from keras_transformer.export.tflite.passes.dilations import join_dilations
from keras_transformer.export.tflite.passes.fusions import fuse
from keras_transformer.export.tflite.passes.interface import describe, name_interface
from keras_transformer.export.tflite.passes.products import complete_products
from keras_transformer.export.tflite.tree import read, write_file
from keras_transformer.export.tflite.weights.insert_weights import Inserter
from keras_transformer.export.tflite.weights.integers import store_integers
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.freed_memory import give_back

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.graph.traced_graph import TracedGraph

FILE = "model.tflite"
_MAX_BYTES = 2**31 - 2**20
# Loops fill lists.
_LIST = "TensorListReserve"

# The converter names an op it cannot lower with the graph node it came from:
#   error: loc(callsite(fused["Erf:", "functional_1/mylayer_1/Erf@__inference_serve_118"] at ...)): 'tf.Erf' op is ...
_UNSUPPORTED = re.compile(r"error: loc\((?P<where>.*)\): (?:failed to legalize operation )?'tf\.(?P<op>\w+)'")
_NODE = re.compile(r"fused\[\"\w+:\", \"(?P<node>[^\"@]+)")
# The types of its operands are in a note below: see current operation: %1 = "tf.Erf"(%0) {...} : (tensor<?x6xf16>) -> ...
_OPERAND = r"\"tf\.{op}\"\(.*? : \(tensor<(?:[\d?*]+x)*(?P<type>\w+(?:<\w+>)?)>"
_TYPES = {
    "f16": "float16",
    "f64": "float64",
    "bf16": "bfloat16",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}
_TYPES |= {f"{sign}{bits}": f"{name}int{bits}" for sign, name in (("i", ""), ("ui", "u")) for bits in (8, 16, 32, 64)}
_USUAL = ("float32", "int32")
# Of other errors, what follows the place.
_ERROR = re.compile(r"error: (?:loc\((?P<where>.*)\): )?(?P<text>.+)")
_FLEX_LIST = re.compile(r"(?:TF Select|Custom) ops: (?P<ops>.+)")


def write(traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
    """Writes `model.tflite` with all signatures.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from.
        directory: `pathlib.Path` to write into.

    Returns:
        Dict of signature name to the path of its file, relative to `directory`.

    Raises:
        UnsupportedOpError: an op would need the Flex delegate or a custom kernel.
        ConversionError: the converter fails for another reason, or weights that it must see exceed 2 GB.
    """
    names = spec.names(TFLITE)
    traced = traced.with_graphs({name: _lowered(traced, spec, name) for name in names})
    if any(traced.graphs[name].captures for name in names):
        model = _with_captures(traced, spec)
    else:
        model = _without_captures(traced, spec)
    join_dilations(model)
    fuse(model, spec.folds_factors)
    if any(each.dtype in ("int8", "uint8") for each in spec.variables):
        store_integers(model)
    if spec.target is None:
        write_slices(model)
    else:
        spec.target.rewrite(model)
    name_interface(model, spec)
    describe(model, spec.metadata)
    write_file(model, directory / FILE)
    return dict.fromkeys(names, FILE)


def _lowered(traced: TracedModule, spec: ExportSpec, name: str) -> TracedGraph:
    """The graph of a signature, of operations that TFLite has."""
    graph = traced.graphs[name]
    if any(node.op == _LIST for node in every_node(graph.graph_def)):
        graph = traced.traced_again(name, BY_FORMAT[TFLITE])
    return lowered(graph, TFLITE, spec.locate)


def _without_captures(traced: TracedModule, spec: ExportSpec) -> ModelT:
    """The converted model, whose large weights the converter does not see."""
    names = spec.names(TFLITE)
    weights = InputWeights(traced, spec, names)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, SAVED_MODEL)
        weights.save(path)
        model = _converted(spec, names, path)
    weights.insert(model, spec.folds_factors)
    return model


def _with_captures(traced: TracedModule, spec: ExportSpec) -> ModelT:
    """The converted model of graphs that use variables or tables which are not the model's."""
    if traced.weight_bytes > _MAX_BYTES:
        size = traced.weight_bytes / 1e9
        raise ConversionError(
            TFLITE, f"graphs that use tables, or variables of others, are limited to 2 GB; {size:.1f} GB"
        )
    names = spec.names(TFLITE)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, SAVED_MODEL)
        saved_model.write_signatures(traced, names, path)
        model = _converted(spec, names, path)
    complete_products(model, Inserter(model), spec.folds_factors)
    return model


def _converted(spec: ExportSpec, names: list[str], saved: pathlib.Path) -> ModelT:
    """The object tree of a converted SavedModel."""
    with captured() as log:
        try:
            content = convert_saved_model(str(saved), names)
            give_back()
            return read(content)
        except library_exceptions() as error:
            raise _typed(str(error), spec.locate, log()) from error


def _typed(message: str, locate: Callable[[str, str], str], log: str) -> ExportError:
    """Converts the message of the converter to a typed error."""
    found: dict[tuple[str, str], None] = {}
    for match in _UNSUPPORTED.finditer(message):
        node = _NODE.search(match["where"])
        found[match["op"], locate(match["op"], node["node"] if node else "unknown")] = None
    if not found:
        for match in _FLEX_LIST.finditer(message):
            found.update({(op.strip(), "unknown"): None for op in match["ops"].split(",")})
    if not found:
        return ConversionError(TFLITE, _reason(message, locate), log, Remedy.FORMAT)
    (op, layer), *others = found
    if (dtype := _operand_type(message, op)) and op in OPERATIONS and TFLITE not in OPERATIONS[op].remedies:
        return UnsupportedOpError(TFLITE, op, layer, others, f"LiteRT does not have it of {dtype}", Remedy.TYPE)
    return unsupported(TFLITE, list(found))


def _operand_type(message: str, op: str) -> str:
    """The type of the first operand of an operation in the converter's message; "" for one that most operations take."""
    found = re.search(_OPERAND.format(op=re.escape(op)), message)
    dtype = _TYPES.get(found["type"], "") if found else ""
    return "" if dtype in _USUAL else dtype


def _reason(message: str, locate: Callable[[str, str], str]) -> str:
    """What the first error of the converter says, and of which layer."""
    found = _ERROR.search(message)
    if found is None:
        return one_line(message)
    node = _NODE.search(found["where"] or "")
    return f"layer '{locate('', node['node'])}': {found['text']}" if node else found["text"]


def convert_saved_model(source: str, names: list[str]) -> bytes:
    """Converts a SavedModel to a TFLite file of built-in operators.

    `TFLiteConverter.from_saved_model(...).convert()` loads the SavedModel three times as Python graphs, for checks, for
    metadata and for the places of errors, and takes most of its time and memory for that. The converter itself, which is
    written in C++, reads the folder on its own: here it is called alone.

    Args:
        source: path of the SavedModel.
        names: names of its signatures.

    Returns:
        The content of the file.
    """
    from tensorflow.lite.python import lite

    converter_class: Any = getattr(lite, "TFLiteSavedModelConverterV2", None)
    if not hasattr(converter_class, "_convert_from_saved_model"):  # Another release of TensorFlow.
        return _options(tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=names)).convert()
    converter = _options(converter_class(source, {tf.saved_model.SERVING}, names))
    # It would unpack and pack the file in Python to merge equal constants, which `fuse` does too.
    converter._optimize_tflite_model = lambda content, *_, **__: content
    return converter._convert_from_saved_model(tf.compat.v1.GraphDef())  # The graph is for statistics.


def _options(converter: tf.lite.TFLiteConverter) -> tf.lite.TFLiteConverter:
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.exclude_conversion_metadata = True  # It would be added by unpacking and packing the file in Python.
    return converter
