"""Calibration: the ranges of the inputs of products, from runs of a float ONNX file on data."""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.onnx.graph import name_of
from keras_transformer.export.onnx.weights.files import read
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.errors import library_exceptions

# Activation functions that processors of integers look up in a table.
FUNCTIONS = frozenset({"Gelu"})
_PRODUCTS = ("MatMul", "Gemm")


def ranges_of(
    directory: pathlib.Path,
    files: dict[str, str],
    calibration: Iterable[Mapping[str, Any]],
    method: str = "mse",
    of_results: bool = False,
) -> dict[str, tuple[float, float]]:
    """Returns the range of every tensor that is multiplied by a weight, over a calibration data set.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it; there must be one.
        calibration: iterable of dicts of arrays by input name.
        method: one of `quantization.ranges.RANGES`.
        of_results: bool. Whether convolutions have ranges, and the results of products and convolutions without a bias,
            named `TENSOR/result`, and the arguments of activation functions, named `TENSOR/argument`.

    Returns:
        dict of tensor name to `(least, largest)`.

    Raises:
        QuantizationError: there are several signatures or no data, or the model rejects the data.
    """
    if len(set(files.values())) > 1:
        raise QuantizationError("int8_static calibrates one forward pass", Remedy.STEPS)
    path = directory / next(iter(files.values()))
    graph = read(path).graph
    offsets = {**_results_of_products(graph), **_arguments(graph)} if of_results else {}
    inputs = _inputs_of_products(graph, of_results)
    names = list(dict.fromkeys([*inputs, *(name for name, _ in offsets.values())]))
    if not inputs:
        raise QuantizationError("onnx: the model has no matrix products", Remedy.PRODUCTS)
    tensors = {**{name: (name, None) for name in inputs}, **offsets}
    session = session_with_outputs(path, names)
    observers = {name: RangeObserver() for name in tensors}
    is_empty = True
    for batch in calibration:
        try:
            results = session.run(names, {key: np.asarray(array) for key, array in batch.items()})
        except library_exceptions() as error:
            raise QuantizationError(f"the calibration data do not fit the model: {error}") from error
        found = dict(zip(names, results, strict=True))
        for name, (tensor, bias) in tensors.items():
            array = np.asarray(found[tensor])
            observers[name].add(array if bias is None else array - bias)
        is_empty = False
    if is_empty:
        raise QuantizationError("the calibration data are empty", Remedy.CALIBRATION, name="Int8Static")
    return {name: observer.range(method) for name, observer in observers.items()}


def _inputs_of_products(graph: ir.Graph, with_convolutions: bool) -> list[str]:
    kinds = (_PRODUCTS, ("Conv",) if with_convolutions else ())
    nodes = [node for operators in kinds for node in graph if node.op_type in operators]
    return list(dict.fromkeys(name_of(node.inputs[0]) for node in nodes if not _is_weight(node.inputs[0])))


def _is_weight(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer()


def _results_of_products(graph: ir.Graph) -> dict[str, tuple[str, np.ndarray | None]]:
    """Dict of `TENSOR/result` of products and convolutions to the tensor, and the bias that it has besides."""
    found: dict[str, tuple[str, np.ndarray | None]] = {}
    for node in (node for node in graph if node.op_type in (*_PRODUCTS, "Conv")):
        result, is_convolution = name_of(node.outputs[0]), node.op_type == "Conv"
        kernel, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            found[f"{result}/result"] = (result, None)
        elif _is_weight(bias):
            values = np.asarray(constant_of(bias))
            if is_convolution and kernel is not None and kernel.shape is not None:  # Channels are the second axis.
                values = values.reshape(-1, *(1 for _ in kernel.shape[2:]))
            found[f"{result}/result" if is_convolution else f"{result}/product/result"] = (result, values)
    return found


def _arguments(graph: ir.Graph) -> dict[str, tuple[str, None]]:
    """Dict of `TENSOR/argument` of activation functions to the tensor."""
    tensors = [name_of(node.inputs[0]) for node in graph if node.op_type in FUNCTIONS]
    return {f"{tensor}/argument": (tensor, None) for tensor in tensors}


def session_with_outputs(path: pathlib.Path, names: list[str]) -> Any:
    """A session of a file that returns further tensors.

    Args:
        path: path of an ONNX file.
        names: names of tensors of its main graph.
    """
    import onnxruntime

    model = onnx.load(str(path), load_external_data=True)
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
