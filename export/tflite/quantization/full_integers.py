"""Integers throughout in TFLite files: TensorFlow's quantizer on the float file, with ranges that were measured here.

The quantizer takes a float file whose tensors have a least and a largest number, and knows which operators have integer
kernels, which of their tensors share a scale, and which have a fixed one. What it has written is compared with the ranges.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.errors import ConversionError
from keras_transformer.export.quantization.calibrated import FullInt8, batches_of
from keras_transformer.export.quantization.options import matches
from keras_transformer.export.quantization.ranges import LARGEST
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization import int16_activations, loops
from keras_transformer.export.tflite.quantization.activation_ranges import Ranges, tensor_ranges
from keras_transformer.export.tflite.quantization.integer_kernels import (
    compute_in_integers,
    drop_idle_bounds,
    split_operators,
)
from keras_transformer.export.tflite.quantization.scales import check_scales
from keras_transformer.export.tflite.tree import indices, read, read_file, schema, write, write_file
from keras_transformer.export.tflite.weights.weight import Weight, find_weights, name_by_channels, readers
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line

if TYPE_CHECKING:
    import keras
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec


def quantize(spec: ExportSpec, directory: pathlib.Path, files: Mapping[str, str]) -> None:
    """Quantizes the TFLite file of a bundle that is being written.

    Args:
        spec: the `ExportSpec`, whose `quantization` is a `FullInt8` with a list of batches.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or a signature takes none of the data.
        ConversionError: TensorFlow's quantizer fails.
        WeightError: a tensor of the file has another scale than its range.
    """
    (path,) = {directory / each for each in files.values()}
    content, quantization = path.read_bytes(), spec.quantization
    bits = quantization.activation_bits
    if spec.target is None:
        content = split_operators(content, bits)
    batches, method = batches_of(quantization), quantization.ranges
    ranges = tensor_ranges(content, batches, method, bits, quantization.learned)
    before = read(content)
    in_loops = loops.weights_of_steps(before, _kept_weights(before, quantization, spec.variables))
    is_static = bits == 16 or spec.target is not None
    of_steps = loops.product_ranges(content, batches, in_loops, method) if is_static else None
    model = read(in_integers(content, ranges, quantization, spec.variables))
    compute_in_integers(model)
    loops.quantize_products(model, in_loops, of_steps)
    if bits == 16:
        int16_activations.mend(model)
        is_integer = {f"{end}s": getattr(quantization, f"{end}_type") == "int16" for end in ("input", "output")}
        int16_activations.use_integer_ends(model, **is_integer)
    model.metadata, model.description = None, before.description
    _copy_metadata(before, model)
    if spec.target is not None:
        spec.target.rewrite_integers(model)
    write_file(model, path)
    check_scales(read_file(path), ranges, bits, of_steps)


def in_integers(
    content: bytes, ranges: Ranges, quantization: FullInt8, variables: Sequence[keras.Variable] = ()
) -> bytes:
    """A float file as TensorFlow's quantizer writes it again.

    Args:
        content: bytes of a float .tflite file.
        ranges: the result of `tensor_ranges`.
        quantization: `FullInt8`.
        variables: the Keras variables of the model, whose paths `keep_float` matches; otherwise the names of tensors.

    Raises:
        QuantizationError, ConversionError: see `quantize`.
    """
    import tensorflow as tf
    from tensorflow.compiler.mlir.lite.types_pb2 import QUANTIZED_INT8, QUANTIZED_INT16
    from tensorflow.lite.python.convert import mlir_quantize

    model, is_wide = read(content), quantization.activation_bits == 16
    floats = _kept_results(_kept_weights(model, quantization, variables)) | _results_beyond(model, ranges)
    floats |= _results_like_bodies(model, {number for number, _ in ranges})
    drop_idle_bounds(model, ranges)
    if is_wide:
        ranges = {key: int16_activations.symmetric(*ends) for key, ends in ranges.items()}
        floats |= int16_activations.results_without_kernel(model)
        int16_activations.quantize_constants(model, floats)
    for number, graph in enumerate(graphs(model)):
        for index, tensor in enumerate(graph.tensors):
            if (number, index) in ranges:
                least, largest = ranges[number, index]
                tensor.quantization = schema().QuantizationParametersT()
                tensor.quantization.min = np.array([least], "float32")
                tensor.quantization.max = np.array([largest], "float32")
    types = {f"{end}_data_type": tf.as_dtype(getattr(quantization, f"{end}_type")) for end in ("input", "output")}
    with captured() as log:
        try:
            kind = QUANTIZED_INT16 if is_wide else QUANTIZED_INT8
            return mlir_quantize(write(model), inference_type=kind, denylisted_nodes=floats, **types)
        except library_exceptions() as error:
            raise ConversionError(TFLITE, f"TensorFlow's quantizer fails: {one_line(error)}", log()) from error


def _kept_weights(model: ModelT, quantization: FullInt8, variables: Sequence[keras.Variable]) -> list[Weight]:
    """The weights that stay float."""
    weights = find_weights(model, variables, least=1)
    name_by_channels(weights if quantization.keep_float else (), variables)
    kept = matches({weight.name for weight in weights}, quantization.keep_float)
    return [weight for weight in weights if weight.name in kept]


def _kept_results(weights: Sequence[Weight]) -> set[str]:
    """The names of what is computed with weights that stay float."""
    places = [place for weight in weights for place in weight.tensors]
    return {graph.name(int(reader.outputs[0])) for graph, index in places for reader, _ in readers(graph, index)}


def _results_beyond(model: ModelT, ranges: Ranges) -> set[str]:
    """The names of what is computed with numbers that no step of 8 bits has beside others, as additive masks are."""
    found: set[str] = set()
    for number, graph in enumerate(graphs(model)):
        for operator in graph.subgraph.operators:
            tensors = (*indices(operator.inputs), *indices(operator.outputs))
            ends = [abs(end) for index in tensors for end in ranges.get((number, index), ())]
            values = [graph.small_value(index) for index in tensors if index >= 0 and graph.type(index) == "FLOAT32"]
            ends += [float(np.abs(each).max(initial=0.0)) for each in values if each is not None]
            if max(ends, default=0.0) > LARGEST:
                found |= {graph.name(index) for index in indices(operator.outputs)}
    return found


def _results_like_bodies(model: ModelT, measured: Collection[int]) -> set[str]:
    """The names of what is computed with weights of the body of a loop, which would be in the file a second time."""
    in_bodies, found = set[int](), set[str]()
    for is_main in (False, True):
        for number, graph in enumerate(graphs(model)):
            for operator in graph.subgraph.operators if (number in measured) == is_main else ():
                weights = {
                    graph.tensors[index].buffer for index in indices(operator.inputs) if _is_weight(graph, index)
                }
                in_bodies |= set() if is_main else weights
                found |= {graph.name(int(operator.outputs[0]))} if is_main and weights & in_bodies else set()
    return found


def _is_weight(graph: Graph, index: int) -> bool:
    return graph.is_constant(index) and graph.type(index) == "FLOAT32" and len(graph.shape(index)) > 1


def _copy_metadata(before: ModelT, after: ModelT) -> None:
    """Gives a file the entries of metadata of another one."""
    from keras_transformer.export.tflite.passes.interface import add_metadata, read_metadata

    for name, content in read_metadata(before).items():
        add_metadata(after, name, content)
