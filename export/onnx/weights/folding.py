"""Float ONNX files as ONNX Runtime simplifies them when it loads one: factors and offsets of channels are in the weights."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx

from keras_transformer.export.errors import ConversionError
from keras_transformer.export.onnx.graph import name_of
from keras_transformer.export.onnx.options import CONTRIB
from keras_transformer.export.onnx.weights.dequantize import ConstantReader
from keras_transformer.export.runtime.libraries import ONNX

if TYPE_CHECKING:
    import onnxruntime

# Entry of the metadata of a quantized file, which says that it was made from a folded one.
FOLDED = "folded"
_ROUNDING = 1e-4


def fold(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A float file as ONNX Runtime simplifies it: factors and offsets of channels are in the weights before them.

    Transposed convolutions whose kernels do not overlap are convolutions of single pixels and `DepthToSpace`, of which ONNX
    Runtime has kernels of integers.

    Args:
        path: path of a float file.
        folder: folder for the result.

    Returns:
        The path of the result.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    used = {node.domain for node in model.graph.node} | {"", CONTRIB}
    domains = [each for each in model.opset_import if each.domain in used]
    _split_transposed(model.graph)
    del model.opset_import[:]
    model.opset_import.extend(domains)
    onnx.save(model, options.optimized_model_filepath)
    return pathlib.Path(options.optimized_model_filepath)


def _split_transposed(graph: onnx.GraphProto) -> None:
    """Writes transposed convolutions as convolutions of single pixels, whose channels become rows and columns."""
    arrays = {each.name: each for each in graph.initializer}
    uses = collections.Counter(name for node in graph.node for name in node.input)
    for position, node in reversed(list(enumerate(graph.node))):
        weights = [name for name in node.input[1:] if name]
        if node.op_type != "ConvTranspose" or not all(name in arrays and uses[name] == 1 for name in weights):
            continue
        kernel, *biases = (onnx.numpy_helper.to_array(arrays[name]) for name in weights)
        size = _block_of(node, kernel)
        if size is None:
            continue
        channels = kernel.transpose(1, 2, 3, 0).reshape(-1, len(kernel), 1, 1)
        for name, array in zip(weights, (channels, *(np.repeat(each, size**2) for each in biases)), strict=True):
            arrays[name].CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        (result,), between = node.output, f"{node.output[0]}/channels"
        pixels = onnx.helper.make_node("Conv", node.input, [between], node.name, kernel_shape=[1, 1])
        moved = onnx.helper.make_node(
            "DepthToSpace", [between], [result], f"{node.name}/pixels", blocksize=size, mode="CRD"
        )
        graph.node.remove(node)
        for each in (moved, pixels):
            graph.node.insert(position, each)


def _block_of(node: onnx.NodeProto, kernel: np.ndarray) -> int | None:
    """The side of the squares of a transposed convolution that do not overlap, or None."""
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    size = kernel.shape[-1]
    expected = {"strides": [size] * 2, "kernel_shape": [size] * 2, "dilations": [1, 1], "group": 1}
    expected |= {"pads": [0] * 4, "output_padding": [0] * 2, "auto_pad": b"NOTSET"}
    is_square = kernel.ndim == 4 and kernel.shape[-2] == size and "strides" in attributes
    is_plain = all(attributes[key] == value for key, value in expected.items() if key in attributes)
    return size if is_square and is_plain and "output_shape" not in attributes else None


def origins(path: pathlib.Path) -> dict[str, str]:
    """The names of the weights that tensors are computed from alone, by those of the tensors, which may be folded.

    Args:
        path: path of a float file.
    """
    reader = ConstantReader(path)
    values = [value for node in reader.graph for value in node.inputs if value is not None]
    found = {name_of(value): reader.root(value) for value in values if not value.is_initializer()}
    return {name: name_of(root) for name, root in found.items() if root.is_initializer()}


def check_folded(path: pathlib.Path, folded: pathlib.Path, batch: Mapping[str, np.ndarray]) -> None:
    """Compares a folded file with the proven float file that it was made from.

    Args:
        path: path of the float file.
        folded: path of the folded one.
        batch: inputs of both.

    Raises:
        ConversionError: they compute something else.
    """
    before, after = (_opened(each).run(None, dict(batch)) for each in (path, folded))
    for expected, found in zip(before, after, strict=True):
        if expected.dtype.kind != "f":
            continue
        scale = float(np.abs(expected).max(initial=0.0)) or 1.0
        if not np.allclose(found, expected, rtol=0, atol=_ROUNDING * scale):
            raise ConversionError(ONNX, "ONNX Runtime's simplified graph computes something else")


def _opened(path: pathlib.Path) -> onnxruntime.InferenceSession:
    from keras_transformer.export.onnx.runtime import onnx_session

    return onnx_session(str(path), 1)
