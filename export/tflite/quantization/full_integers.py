"""Integers throughout in TFLite files: TensorFlow's quantizer on the float file, with ranges that were measured here.

The quantizer takes a float file whose tensors have a least and a largest number, and knows which operators have integer
kernels, which of their tensors share a scale, and which have a fixed one. What it has written is compared with the ranges.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keras_transformer.export.errors import ConversionError, QuantizationError
from keras_transformer.export.quantization.calibrated import FullInt8, batches_of
from keras_transformer.export.quantization.options import matches
from keras_transformer.export.quantization.ranges import LARGEST, RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization import int16_activations, loops
from keras_transformer.export.tflite.quantization.calibrate import runs_on
from keras_transformer.export.tflite.quantization.delegated import with_delegated_kernels
from keras_transformer.export.tflite.quantization.scales import check_scales
from keras_transformer.export.tflite.tree import indices, read, read_file, schema, write, write_file
from keras_transformer.export.tflite.weights.weight import Weight, find_weights, name_by_channels, readers
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line

if TYPE_CHECKING:
    import keras
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.quantization.calibration_data import Batch

# The range of a tensor by the indices of its graph and its own.
Ranges: TypeAlias = "dict[tuple[int, int], tuple[float, float]]"
# Operators that take parts of a tensor, or move its numbers, and where they have it among their inputs.
_TAKING = {
    **dict.fromkeys(
        ("GATHER", "GATHER_ND", "SLICE", "STRIDED_SLICE", "RESHAPE", "EXPAND_DIMS", "TRANSPOSE", "TILE"), 0
    ),
    "EMBEDDING_LOOKUP": 1,
}
# Narrower ranges contain at least the numbers up to this one, of both signs.
_NARROW, _NEAR_ZERO = 1e-5, 1e-6
# The range of a tensor that is zero throughout.
_ZEROS = (0.0, 1.0)


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
        content = with_delegated_kernels(content)
    batches, method = batches_of(quantization), quantization.ranges
    ranges = tensor_ranges(content, batches, method, bits)
    before = read(content)
    in_loops = loops.weights_of_steps(before, _kept_weights(before, quantization, spec.variables))
    is_static = bits == 16 or spec.target is not None
    of_steps = loops.product_ranges(content, batches, in_loops, method) if is_static else None
    model = read(in_integers(content, ranges, quantization, spec.variables))
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


def tensor_ranges(content: bytes, calibration: Sequence[Batch], method: str = "mse", bits: int = 8) -> Ranges:
    """The ranges of all float tensors that a file computes, on calibration data.

    Args:
        content: bytes of a float .tflite file.
        calibration: list of dicts of arrays by input name.
        method: one of `quantization.ranges.RANGES`.
        bits: of the activations.

    Returns:
        The ranges. The bodies of loops have none: errors of a state in 8 bits would add up over the steps.

    Raises:
        QuantizationError: a signature takes none of the data.
    """
    model, observers = read(content), dict[tuple[int, int], RangeObserver]()
    names = {each.signatureKey.decode() for each in model.signatureDefs}
    for name, number, interpreter in runs_on(content, model, calibration):
        names.discard(name)
        graph = Graph(model, model.subgraphs[number])
        for index in _computed(graph):
            with contextlib.suppress(ValueError):  # It keeps no value of some results of loops.
                values = interpreter.get_tensor(index, number)
                observers.setdefault((number, index), RangeObserver()).add(values)
    if names:
        raise QuantizationError(f"tflite: signature '{min(names)}' takes none of the calibration data", Remedy.STEPS)
    found = {key: observer.range(method, bits) for key, observer in observers.items()}
    ranges = {key: _quantizable(*ends) for key, ends in (found | _of_tables(model, found)).items()}
    _join_states(model, ranges)
    return ranges


def _quantizable(least: float, largest: float) -> tuple[float, float]:
    """A range as the quantizer takes it, which widens those of numbers near zero."""
    if largest <= least:
        return _ZEROS
    return (least, largest) if largest - least > _NARROW else (min(least, -_NEAR_ZERO), max(largest, _NEAR_ZERO))


def _of_tables(model: ModelT, measured: Collection[tuple[int, int]]) -> Ranges:
    """The ranges of parts of tables, which are those of the tables: other data take other parts."""
    found: Ranges = {}
    for number, graph in enumerate(graphs(model)):
        for operator in graph.subgraph.operators:
            kind, result = graph.kind(operator), (number, int(operator.outputs[0]))
            if kind in _TAKING and result in measured:
                source = int(operator.inputs[_TAKING[kind]])
                table = graph.value(source) if graph.type(source) == "FLOAT32" else None
                ends = found.get((number, source)) if table is None else (float(table.min()), float(table.max()))
                if ends is not None:
                    found[result] = min(ends[0], 0.0), max(ends[1], 0.0)
    return found


def _join_states(model: ModelT, ranges: Ranges) -> None:
    """Gives an input and the output of its name, a state that the next call takes, the range of both."""
    for signature in model.signatureDefs:
        outputs = {each.name.decode().removesuffix("_output"): int(each.tensorIndex) for each in signature.outputs}
        for each in signature.inputs:
            places = (int(each.tensorIndex), outputs.get(each.name.decode(), -1))
            keys = [(int(signature.subgraphIndex), place) for place in places]
            if all(key in ranges for key in keys):
                # The first state may be the only one in the data.
                least, largest = zip(*([ranges[key] for key in keys if ranges[key] != _ZEROS] or [_ZEROS]), strict=True)
                ranges |= dict.fromkeys(keys, (min(least), max(largest)))


def _computed(graph: Graph) -> Iterator[int]:
    """The float tensors that a graph takes or computes."""
    results = {index for operator in graph.subgraph.operators for index in indices(operator.outputs)}
    for index in sorted(results | set(indices(graph.subgraph.inputs))):
        if graph.type(index) == "FLOAT32":
            yield index


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
