"""Integers throughout in ONNX files: operators between `QuantizeLinear` and `DequantizeLinear`, which a runtime fuses.

ONNX Runtime first folds factors and offsets of channels into convolutions and products, as it does when it loads a float
file: what is rounded then is what it computes. The integers are those of onnxruntime.quantization, for the ranges that were
measured here; what it has written is compared with them.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from keras_transformer.export.errors import ConversionError, QuantizationError
from keras_transformer.export.onnx.graph import add_constant, drop_unread_constants, make_node, name_of, put_first
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.quantization.calibrate import session_with_outputs
from keras_transformer.export.onnx.quantization.factors import drop_factors, factors_of
from keras_transformer.export.onnx.quantization.scales import check_scales
from keras_transformer.export.onnx.weights.files import GraphFiles, read
from keras_transformer.export.onnx.weights.folding import FOLDED, check_folded, fold, origins
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.quantization.block_quantize import by_channel
from keras_transformer.export.quantization.calibrated import FullInt8, batches_of
from keras_transformer.export.quantization.learned_ranges import LearnedRanges, range_of
from keras_transformer.export.quantization.options import matches
from keras_transformer.export.quantization.ranges import LARGEST, RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.quantization.calibration_data import Batch

Ranges: TypeAlias = "dict[str, tuple[float, float]]"
# Operators that ONNX Runtime computes from integers on a CPU, or that only move numbers.
OPERATORS = (
    *("Conv", "Gemm", "MatMul", "Add", "Mul", "Sigmoid", "LeakyRelu", "Softmax", "Where", "Concat", "Relu", "Clip"),
    *("AveragePool", "GlobalAveragePool", "MaxPool", "Resize", "Pad", "Slice", "Split", "DepthToSpace", "SpaceToDepth"),
    *("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather"),
)
_RECURRENT = ("LSTM", "GRU", "RNN")
# The opset from which standard operators have 16 bits.
_WITH_16_BITS = 21


def quantize(spec: ExportSpec, directory: pathlib.Path, files: Mapping[str, str]) -> None:
    """Quantizes the ONNX file of a bundle that is being written.

    Args:
        spec: the `ExportSpec`, whose `quantization` is a `FullInt8` with a list of batches.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, there are several files, inputs or outputs are to
            be integers, or the operators that the options allow have no 16 bits.
        ConversionError: the folded file computes something else, or onnxruntime.quantization fails.
        WeightError: a tensor of the file has another scale than its range.
    """
    quantization: FullInt8 = spec.quantization
    if len(set(files.values())) > 1:
        raise QuantizationError("full_int8 calibrates one forward pass", Remedy.STEPS)
    if {quantization.input_type, quantization.output_type} != {"float32"}:
        raise QuantizationError("onnx: inputs and outputs of integers are TFLite's", Remedy.ENDS)
    options = spec.onnx or OnnxOptions()
    if quantization.activation_bits == 16 and options.target < _WITH_16_BITS and not options.contrib_ops:
        raise QuantizationError("onnx: activations of 16 bits need opset 21, or contrib_ops", Remedy.CONTRIB)
    (path,) = set(files.values())
    batches = batches_of(quantization)
    with tempfile.TemporaryDirectory() as name:
        folded = fold(directory / path, pathlib.Path(name))
        check_folded(directory / path, folded, batches[0])
        bits = quantization.activation_bits
        ranges = tensor_ranges(folded, batches, quantization.ranges, bits, quantization.learned)
        kept = _kept_weights(read(folded).graph, origins(directory / path), quantization.keep_float)
        quantized = pathlib.Path(name, "quantized.onnx")
        onnx.save(in_integers(folded, ranges, kept, bits), str(quantized))
        model = read(quantized)
        _name_weights(model.graph)
        store_recurrent_weights(model.graph, kept)
        factors = factors_of(read(folded).graph) if spec.target is None else {}
        drop_factors(model.graph, factors)
        model.metadata_props.update({**read(directory / path).metadata_props, FOLDED: "yes"})
        check_scales(model.graph, ranges, bits, factors)
        _compact(model.graph)
        GraphFiles(directory, 1).save({path: model})


def tensor_ranges(
    path: pathlib.Path,
    calibration: Sequence[Batch],
    method: str = "mse",
    bits: int = 8,
    learned: LearnedRanges | None = None,
) -> Ranges:
    """The ranges of all float tensors that the main graph of a file takes and computes, on calibration data.

    Args:
        path: path of a float file.
        calibration: list of dicts of arrays by input name.
        method: one of `quantization.ranges.RANGES`.
        bits: of the activations.
        learned: `LearnedRanges` of some tensors, or None.

    Raises:
        QuantizationError: the model rejects the data.
    """
    names = [name_of(value) for node in read(path).graph for value in node.outputs if value.name]
    session, observers = session_with_outputs(path, names), dict[str, RangeObserver]()
    for batch in calibration:
        try:
            results = session.run(names, dict(batch))
        except library_exceptions() as error:
            raise QuantizationError(f"the calibration data do not fit the model: {one_line(error)}") from error
        for name, array in [*zip(names, results, strict=True), *batch.items()]:
            if np.asarray(array).dtype == np.float32:
                observers.setdefault(name, RangeObserver()).add(np.asarray(array))
    return {name: range_of(observer, method, bits, learned) for name, observer in observers.items()}


def in_integers(path: pathlib.Path, ranges: Ranges, kept: Collection[str] = (), bits: int = 8) -> onnx.ModelProto:
    """A float file with the integers and scales of onnxruntime.quantization.

    Args:
        path: path of a folded file.
        ranges: the result of `tensor_ranges`.
        kept: names of the initializers whose operators stay float.
        bits: of the activations.

    Raises:
        ConversionError: onnxruntime.quantization fails.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    data = {
        name: TensorData(lowest=np.float32(least), highest=np.float32(largest))
        for name, (least, largest) in ranges.items()
    }
    floats = _kept_nodes(read(path).graph, ranges, kept)
    activations = QuantType.QUInt16 if bits == 16 else QuantType.QUInt8
    types = (QuantType.QInt8, activations, TensorsData(CalibrationMethod.MinMax, data))
    model = onnx.load(str(path))
    is_contrib = bits == 16 and max(each.version for each in model.opset_import if not each.domain) < _WITH_16_BITS
    options = {"UseQDQContribOps": True} if is_contrib else {}
    with captured() as log:
        try:
            quantizer = QDQQuantizer(model, True, False, *types, [], floats, list(OPERATORS), options)
            return quantizer.quantize_model()
        except library_exceptions() as error:
            reason = f"onnxruntime.quantization fails: {one_line(error)}"
            raise ConversionError(ONNX, reason, log()) from error


def _kept_weights(graph: ir.Graph, names: Mapping[str, str], patterns: Sequence[str]) -> set[str]:
    """The initializers of a folded graph that are made of weights which match a pattern, by name."""
    unfolded = [name.removeprefix("ConvMulFusion_W_") for name in graph.initializers]
    weights = [names.get(name, name) for name in unfolded]
    kept = matches(weights, patterns)
    return {name for name, weight in zip(graph.initializers, weights, strict=True) if weight in kept}


def _kept_nodes(graph: ir.Graph, ranges: Ranges, kept: Collection[str]) -> list[str]:
    """The names of nodes with a weight that stays float, or with numbers that no step of 8 bits has beside others."""
    found: list[str] = []
    for node in graph:
        names = [name_of(value) for value in (*node.inputs, *node.outputs)]
        ends = [abs(end) for name in names for end in ranges.get(name, ())]
        constants = [constant_of(graph.initializers[name]) for name in names if name in graph.initializers]
        ends += [float(np.abs(np.asarray(each)).max(initial=0)) for each in constants if each.dtype == np.float32]
        if max(ends, default=0.0) > LARGEST or not set(names).isdisjoint(kept):
            found.append(str(node.name))
    return found


def store_recurrent_weights(graph: ir.Graph, kept: Collection[str]) -> None:
    """Stores the weights of recurrent operators in 8 bits, from which floats are computed: there are no integer kernels.

    Args:
        graph: the quantized graph, changed in place.
        kept: names of the weights that stay float.
    """
    weights = [value for node in graph if node.op_type in _RECURRENT for value in node.inputs[1:3] if value is not None]
    for old in dict.fromkeys(each for each in weights if each.is_initializer() and each.name not in kept):
        name, array = name_of(old), np.asarray(constant_of(old))  # (1, gates, width)
        codes, scale = by_channel(array[0].T)
        arrays = {"int8": np.ascontiguousarray(codes.T)[None], "scale": scale, "zero": np.zeros(len(scale), "int8")}
        stored = tuple(add_constant(graph, f"{name}.{label}", each) for label, each in arrays.items())
        node = make_node("DequantizeLinear", stored, name, f"{name}/to_float", axis=1)
        del graph.initializers[name]
        old.replace_all_uses_with(node.outputs[0])
        put_first(graph, [node])


def _name_weights(graph: ir.Graph) -> None:
    """Gives what is computed from the integers of a weight the name of the weight."""
    for node in list(graph):
        codes = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if codes is not None and codes.is_initializer():
            node.outputs[0].name = name_of(node.outputs[0]).removesuffix("_DequantizeLinear_Output")


def _compact(graph: ir.Graph) -> None:
    """Leaves the zero points of biases out, which are 0, and gives what is between floats and integers short names.

    Of a small network, they are a fifth of the file.
    """
    scales: dict[ir.Value, None] = {}
    nodes = [node for node in graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    for number, node in enumerate(nodes):
        codes, *steps = node.inputs
        if codes is not None and codes.is_initializer():
            if codes.dtype == ir.DataType.INT32:
                node.resize_inputs(2)
        else:
            scales |= dict.fromkeys(each for each in steps if each is not None and each.is_initializer())
            if not node.outputs[0].is_graph_output():
                node.outputs[0].name = f"{'q' if node.op_type == 'QuantizeLinear' else 'f'}~{number}"
        node.name = f"{node.op_type[0]}~{number}"
    for number, value in enumerate(scales):
        del graph.initializers[name_of(value)]
        value.name = f"s~{number}"
        assert value.const_value is not None
        value.const_value.name = value.name
        graph.initializers.add(value)
    drop_unread_constants(graph)
