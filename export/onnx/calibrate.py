"""Calibration: the ranges of the inputs of products, from runs of a float ONNX file on data."""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.ranges import RangeObserver


def ranges_of(
    directory: pathlib.Path, files: dict[str, str], calibration: Iterable[Mapping[str, Any]], method: str = "mse"
) -> dict[str, tuple[float, float]]:
    """Returns the range of every tensor that is multiplied by a weight, over a calibration data set.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it; there must be one.
        calibration: iterable of dicts of arrays by input name.
        method: a key of `quantization.ranges.RANGES`.

    Returns:
        dict of tensor name to `(least, largest)`.

    Raises:
        QuantizationError: there are several signatures or no data, or the model rejects the data.
    """
    if len(set(files.values())) > 1:
        raise QuantizationError("int8_static calibrates one forward pass; for language models take int8")
    path = directory / next(iter(files.values()))
    names = _inputs_of_products(onnx.load(str(path), load_external_data=False).graph)
    session = _session_with_outputs(path, names)
    observers = {name: RangeObserver() for name in names}
    is_empty = True
    for batch in calibration:
        try:
            results = session.run(names, {key: np.asarray(array) for key, array in batch.items()})
        except Exception as error:
            raise QuantizationError(f"the calibration data do not fit the model: {error}") from error
        for name, array in zip(names, results, strict=True):
            observers[name].add(np.asarray(array))
        is_empty = False
    if is_empty:
        raise QuantizationError("int8_static needs calibration data: none came")
    return {name: observer.range(method) for name, observer in observers.items()}


def _inputs_of_products(graph: Any) -> list[str]:
    weights = {tensor.name for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    return list(dict.fromkeys(node.input[0] for node in products if node.input[0] not in weights))


def _session_with_outputs(path: pathlib.Path, names: list[str]) -> Any:
    import onnxruntime

    model = onnx.load(str(path), load_external_data=True)
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
