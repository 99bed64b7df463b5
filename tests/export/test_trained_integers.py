"""Files of a model that was trained with its integers: these integers, the ranges that were learned, what they compute."""

import re

import numpy as np
import pytest

from keras_transformer.export.onnx.weights.files import read as read_onnx
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read_file

FORMATS = ("tflite", "onnx")
# The axes that share a scale, by the end of the path of a weight.
KERNELS = {
    "first/kernel": (0, 1, 2),
    "depthwise/kernel": (0, 1),
    "separable/depthwise_kernel": (0, 1),
    "separable/pointwise_kernel": (0, 1, 2),
    "pointwise/kernel": (0, 1, 2),
    "transposed/kernel": (0, 1, 3),
    "query/kernel": (0,),
    "key/kernel": (0,),
    "value/kernel": (0,),
    "attention_output/kernel": (0, 1),
    "lstm_cell/kernel": (0,),
    "lstm_cell/recurrent_kernel": (0,),
    "logits/kernel": (0,),
}
# ONNX Runtime has no integer kernels of attention, norms and recurrent layers.
MISSING_RANGES = {"tflite": set(), "onnx": {"softmax/input", "softmax/output", "normed/output"}}


@pytest.mark.parametrize("format", FORMATS)
def test_files_compute_what_the_trained_model_computes(full_int8, format):
    outputs = {name: np.array(each) for name, each in full_int8["trained"]["outputs"].items()}
    size = np.sqrt(np.mean(np.square(outputs["aware"])))
    of_file, of_rounding = (
        np.sqrt(np.mean(np.square(outputs[name] - outputs["aware"]))) / size for name in (format, "plain")
    )
    assert 0 < of_file < 0.01
    assert of_file < 0.7 * of_rounding
    assert (outputs[format].argmax(-1) == outputs["aware"].argmax(-1)).mean() >= 0.95


@pytest.mark.parametrize("format", FORMATS)
def test_files_have_the_integers_of_training(full_int8, format):
    """A norm that is folded changes no integer but its sign; the order of the channels is that of the file."""
    weights, stored = full_int8["trained"]["weights"], stored_rows(full_int8.bundle("trained"), format)
    missing = set()
    for name, axes in KERNELS.items():
        (values,) = (np.array(each) for path, each in weights.items() if path.endswith(name))
        codes = np.round(values * 127 / np.abs(values).max(axes, keepdims=True))
        rows = np.moveaxis(codes, axes, range(-len(axes), 0)).reshape(
            -1, np.prod([values.shape[axis] for axis in axes])
        )
        missing |= set() if sorted_rows(rows) in stored else {name}
    assert not missing


def stored_rows(folder, format):
    """The integers of the weights of a file, by their channels in any order."""
    if format == "onnx":
        values = read_onnx(folder / "model.onnx").graph.initializers.values()
        arrays = [np.asarray(constant_of(each)) for each in values]
    else:
        tensors = [(graph, index) for graph in graphs(read_file(folder / "model.tflite")) for index in constants(graph)]
        arrays = [np.asarray(graph.value(index)) for graph, index in tensors]
    found = [each for each in arrays if each.dtype == np.int8 and each.ndim > 1]
    views = [np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in found for axis in range(each.ndim)]
    return [sorted_rows(each) for each in views]


def constants(graph):
    return [index for index in range(len(graph.tensors)) if graph.is_constant(index)]


def sorted_rows(rows):
    return sorted(np.sort(np.abs(np.asarray(rows, int))).tolist())


@pytest.mark.parametrize("format", FORMATS)
def test_files_have_the_ranges_that_were_learned(full_int8, format):
    ranges, stored = full_int8["trained"]["ranges"], stored_steps(full_int8.bundle("trained"), format)
    missing = set()
    for name, (least, largest) in ranges.items():
        scale = (largest - least) / 255
        step = scale, np.round(-128 - least / scale)
        if not any(np.isclose(each[0], scale, rtol=1e-5) and each[1] == step[1] for each in stored):
            missing.add(re.sub(r"(_\d+)?/(input|output)_quantizer.*", r"/\2", name))
    assert missing == MISSING_RANGES[format]


def stored_steps(folder, format):
    """The scales of activations of a file, and their zero points from -128."""
    if format == "onnx":
        nodes = [each for each in read_onnx(folder / "model.onnx").graph if each.op_type == "QuantizeLinear"]
        pairs = [[np.asarray(constant_of(value)) for value in each.inputs[1:3]] for each in nodes]
        return [(float(scale), int(zero) - 128) for scale, zero in pairs if scale.ndim == 0]
    found = []
    for graph in graphs(read_file(folder / "model.tflite")):
        parameters = [
            each.quantization for index, each in enumerate(graph.tensors) if graph.type(index) in ("INT8", "INT16")
        ]
        found += [
            (float(each.scale[0]), int(each.zeroPoint[0]))
            for each in parameters
            if each is not None and each.scale is not None and len(each.scale) == 1
        ]
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_other_ranges_than_those_that_were_learned_are_found(full_int8, format):
    assert "which are those of no measured range" in full_int8["trained"]["faults"][format]
