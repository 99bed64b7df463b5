"""Static quantization of matrix products: activation ranges from calibration data, and integer arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import read, schema, size_of
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.schema_py_generated import ModelT

_PRODUCT = "FULLY_CONNECTED"


def find_ranges(
    content: bytes, calibration: Iterable[Mapping[str, Any]], method: str = "mse"
) -> dict[int, tuple[tuple[float, float], tuple[float, float]]]:
    """Runs the float file on examples and records the ranges of inputs and outputs of each product.

    Args:
        content: bytes of a float .tflite file.
        calibration: iterable of dicts of arrays by input name; each runs through every signature that accepts it.
        method: one of `quantization.ranges.RANGES`.

    Returns:
        Dict of the buffer of a product's weights to `((least, largest) of its input, (least, largest) of its output)`.

    Raises:
        QuantizationError: there is no example, or no signature accepts an example.
    """
    model = read(content)
    observers: dict[int, tuple[RangeObserver, RangeObserver]] = {}
    for _, number, interpreter in runs_on(content, model, calibration):
        _record(observers, interpreter, Graph(model, model.subgraphs[number]), number)
    if not observers:
        raise QuantizationError(
            "tflite: the calibration data are empty, or the model has no matrix products", Remedy.PRODUCTS
        )
    return {buffer: (source.range(method), result.range(method)) for buffer, (source, result) in observers.items()}


def runs_on(
    content: bytes, model: ModelT, calibration: Iterable[Mapping[str, ArrayLike]]
) -> Iterator[tuple[str, int, Interpreter]]:
    """Runs a float file on examples, each in every signature that takes it.

    Args:
        content: bytes of a float .tflite file.
        model: its `ModelT`.
        calibration: iterable of dicts of arrays by input name.

    Yields:
        `(name of the signature, index of its graph, interpreter that has the values of all tensors)`.

    Raises:
        QuantizationError: no signature takes an example.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    with captured():
        interpreter = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
    entries = {each.signatureKey.decode(): int(each.subgraphIndex) for each in model.signatureDefs}
    details = {name: interpreter.get_signature_runner(name).get_input_details() for name in entries}
    sizes = {
        name: {key: tuple(each["shape_signature"]) for key, each in inputs.items()} for name, inputs in details.items()
    }
    for example in calibration:
        parts = {name: list(taken(sizes[name], example)) for name in entries}
        if not any(parts.values()):
            shapes = {name: np.shape(array) for name, array in example.items()}
            raise QuantizationError(f"tflite: no signature takes the calibration example {shapes}")
        for name, part in ((name, part) for name, each in parts.items() for part in each):
            interpreter.get_signature_runner(name)(**_typed(interpreter, name, part))
            yield name, entries[name], interpreter


def taken(sizes: Mapping[str, Sequence[int]], example: Mapping[str, ArrayLike]) -> Iterator[Mapping[str, ArrayLike]]:
    """The parts of an example that a signature of such sizes takes: all of it, its rows where it takes so many, or none.

    Sizes of -1 are any.
    """
    shapes = {name: np.shape(array) for name, array in example.items()}
    if set(sizes) != set(shapes):
        return
    if all(_fits(sizes[name], shapes[name]) for name in sizes):
        yield example
        return
    firsts = {(tuple(sizes[name][:1]), shapes[name][:1]) for name in sizes}
    if len(firsts) != 1 or not all(_fits(sizes[name][1:], shapes[name][1:]) for name in sizes):
        return
    ((rows, count),) = firsts
    if rows and count and rows[0] > 0:
        for start in range(0, count[0] - rows[0] + 1, rows[0]):
            yield {name: np.asarray(array)[start : start + rows[0]] for name, array in example.items()}


def _fits(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(size in (-1, got) for size, got in zip(sizes, shape, strict=True))


def _typed(interpreter: Any, name: str, example: Mapping[str, Any]) -> dict[str, np.ndarray]:
    details = interpreter.get_signature_runner(name).get_input_details()
    return {key: np.ascontiguousarray(array, details[key]["dtype"]) for key, array in example.items()}


def _products(graph: Graph) -> Iterator[tuple[Any, int]]:
    """`(operator, buffer of the weights)` of each product with constant weights."""
    for operator in graph.subgraph.operators:
        if graph.kind(operator) == _PRODUCT:
            buffer = graph.tensors[operator.inputs[1]].buffer
            if size_of(graph.model.buffers[buffer]):
                yield operator, buffer


def _record(observers: dict[int, Any], interpreter: Any, graph: Graph, index: int) -> None:
    for operator, buffer in _products(graph):
        ends = (operator.inputs[0], operator.outputs[0])
        known = observers.setdefault(buffer, (RangeObserver(), RangeObserver()))
        for observer, tensor in zip(known, ends, strict=True):
            observer.add(interpreter.get_tensor(int(tensor), index))


def use_ranges(model: ModelT, buffers: set[int], ranges: dict[int, Any], bits: int = 8) -> None:
    """Rewrites products with quantized weights to integer arithmetic.

    Args:
        model: `ModelT`, whose weights are quantized already; changed in place.
        buffers: set of the buffers of quantized weights.
        ranges: the result of `find_ranges`. A product without a range keeps dynamic quantization of its input.
        bits: 8 or 16, of the activations; ranges of 16 bits are symmetric, since kernels have no zero points of them.
    """
    for graph in graphs(model):
        quantized: dict[int, int] = {}
        for operator, buffer in list(_products(graph)):
            if buffer in buffers and buffer in ranges:
                _compute_in_integers(graph, operator, ranges[buffer], quantized, bits)


def _compute_in_integers(graph: Graph, operator: Any, ranges: Any, quantized: dict[Any, int], bits: int) -> None:
    source, weights, *bias = map(int, operator.inputs)
    (output,) = map(int, operator.outputs)
    entry, result = (_parameters(least, largest, bits) for least, largest in ranges)
    operators = graph.subgraph.operators
    key = (source, float(entry.scale[0]))
    if key not in quantized:
        quantized[key] = _like(graph, source, bits, entry)
        graph.insert(operators.index(operator), "QUANTIZE", (source,), (quantized[key],))
    inputs = [quantized[key], weights]
    if bias and bias[0] >= 0:
        inputs.append(_integer_bias(graph, bias[0], entry.scale[0] * graph.tensors[weights].quantization.scale, bits))
    operator.inputs = np.array(inputs, "int32")
    whole = _like(graph, output, bits, result)
    operator.outputs = np.array([whole], "int32")
    graph.insert(operators.index(operator) + 1, "DEQUANTIZE", (whole,), (output,))


def _parameters(least: float, largest: float, bits: int) -> Any:
    parameters = schema().QuantizationParametersT()
    scale = max(largest, -least) / 32767 if bits == 16 else (largest - least) / 255
    parameters.scale = np.array([scale or 1.0], "float32")
    zero = 0 if bits == 16 else round(-128 - least / (scale or 1.0))
    parameters.zeroPoint = np.array([zero], "int64")
    return parameters


def _like(graph: Graph, index: int, bits: int, parameters: Any) -> int:
    """Adds a tensor of integers of the same shape; returns its index."""
    tensor = graph.tensors[index]
    shape: list[int | None] = [int(size) for size in tensor.shape]
    if tensor.shapeSignature is not None and len(tensor.shapeSignature):
        shape = [None if size < 0 else int(size) for size in tensor.shapeSignature]
    return graph.add_tensor(f"{tensor.name.decode()}/quantized", f"INT{bits}", shape, 0, parameters)


def _integer_bias(graph: Graph, index: int, scale: np.ndarray, bits: int) -> int:
    parameters = schema().QuantizationParametersT()
    parameters.scale = scale.astype("float32")
    parameters.zeroPoint = np.zeros(len(scale), "int64")
    # Kernels add products of 16 bits in 64.
    kind, least = ("int64", -(2.0**53)) if bits == 16 else ("int32", -(2.0**31))
    values = np.round(np.asarray(graph.value(index), "float64") / scale).clip(least, -least - 1).astype(kind)
    return graph.add_constant(f"{graph.tensors[index].name.decode()}/quantized", kind.upper(), values, parameters)
