"""Loops in files of integers throughout: the products of a step are of integers, its gates and its state stay float.

Errors of a state in integers would add up over the steps. A CPU quantizes the activations of the products as they come.
Other processors have no such kernels: there activations have 16 bits, since what the products add is what the gates read. An
interpreter shows the values of the last step alone: to find their ranges, a loop is run step by step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keras_transformer.export.quantization.block_quantize import by_channel
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization.blocks import row_parameters
from keras_transformer.export.tflite.quantization.calibrate import runs_on, use_ranges
from keras_transformer.export.tflite.tree import indices, read, schema, write
from keras_transformer.export.tflite.weights.weight import Weight, readers
from keras_transformer.utils.captured_stderr import captured

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SignatureDefT, TensorMapT, WhileOptionsT

    from keras_transformer.export.quantization.calibration_data import Batch

# The ranges of the input and of the result of a product, by the content of its weight.
ProductRanges: TypeAlias = "dict[bytes, tuple[tuple[float, float], tuple[float, float]]]"
_BITS = 16
_PRODUCT = "FULLY_CONNECTED"


def weights_of_steps(model: ModelT, kept: Iterable[Weight]) -> frozenset[bytes]:
    """The weights of the products in loops, by their content.

    Args:
        model: `ModelT` of a float file.
        kept: the weights that stay float.
    """
    every = graphs(model)
    loops = [options for graph in every for _, options in _loops(graph)]
    found = {key for options in loops for _, key in _products(every[options.bodySubgraphIndex])}
    return frozenset(found - {content_of(each.values) for each in kept})


def product_ranges(
    content: bytes, calibration: Sequence[Batch], weights: Collection[bytes], method: str
) -> ProductRanges:
    """The ranges of the products with these weights, in loops and outside of them.

    Args:
        content: bytes of a float .tflite file.
        calibration: list of dicts of arrays by input name.
        weights: the result of `weights_of_steps`.
        method: one of `quantization.ranges.RANGES`.
    """
    model = read(content)
    run = _StepwiseRun(model, weights)
    for _, number, interpreter in runs_on(content, model, calibration) if weights else ():
        run.observe(number, interpreter)
    return run.ranges(method)


def content_of(values: np.ndarray) -> bytes:
    """What is equal for equal weights."""
    return hashlib.sha256(values.tobytes()).digest()


def step(least: float, largest: float) -> tuple[float, float]:
    """The scale and the zero point of a range."""
    return max(largest, -least) / 32767 or 1.0, 0.0


def quantize_products(model: ModelT, weights: Collection[bytes], ranges: ProductRanges | None) -> None:
    """Rewrites products to weights of 8 bits.

    Args:
        model: `ModelT` of the file that TensorFlow's quantizer wrote, changed in place.
        weights: the result of `weights_of_steps`.
        ranges: the result of `product_ranges`; None for activations that are quantized as they come.
    """
    places: dict[int, list[tuple[Graph, int]]] = {}
    for graph in graphs(model):
        for index, tensor in enumerate(graph.tensors):
            places.setdefault(int(tensor.buffer), []).append((graph, index))
    found: dict[int, bytes] = {}
    for graph in graphs(model):
        for operator, key in _products(graph):
            buffer = int(graph.tensors[operator.inputs[1]].buffer)
            if key in weights and all(_is_read_by_products(*place) for place in places[buffer]):
                found[buffer] = key
    for buffer in found:
        _store_in_8_bits(model, places[buffer])
    if ranges is not None:
        use_ranges(model, set(found), {buffer: ranges[key] for buffer, key in found.items()}, _BITS)


def _store_in_8_bits(model: ModelT, places: Sequence[tuple[Graph, int]]) -> None:
    """Replaces the values of a weight, of which these are the tensors."""
    graph, index = places[0]
    codes, scale = by_channel(np.asarray(graph.value(index)).T)
    model.buffers[graph.tensors[index].buffer].data = np.ascontiguousarray(codes.T).reshape(-1).view("uint8")
    for other, place in places:
        other.tensors[place].type = schema().TensorType.INT8
        other.tensors[place].quantization = row_parameters(scale)


def _is_read_by_products(graph: Graph, index: int) -> bool:
    return all((graph.kind(operator), position) == (_PRODUCT, 1) for operator, position in readers(graph, index))


def _products(graph: Graph) -> Iterator[tuple[OperatorT, bytes]]:
    """The products of a graph by a constant, with its content."""
    for operator in graph.subgraph.operators:
        weight = int(operator.inputs[1]) if graph.kind(operator) == _PRODUCT else -1
        if graph.is_constant(weight) and graph.type(weight) == "FLOAT32":
            yield operator, content_of(np.asarray(graph.value(weight)))


class _StepwiseRun:
    """Runs the loops of a file step by step, and observes the products with the weights of their bodies.

    Args:
        model: `ModelT` of the float file. Its loops become signatures.
        weights: the result of `weights_of_steps`.
    """

    def __init__(self, model: ModelT, weights: Collection[bytes]) -> None:
        self._model, self._graphs = model, graphs(model)
        self._products = [[each for each in _products(graph) if each[1] in weights] for graph in self._graphs]
        self._observers = {key: (RangeObserver(), RangeObserver()) for key in weights}
        self._interpreter: Interpreter | None = None

    def ranges(self, method: str) -> ProductRanges:
        """The ranges of all products that were run."""
        pairs = self._observers.items()
        return {key: (source.range(method, _BITS), result.range(method, _BITS)) for key, (source, result) in pairs}

    def observe(self, number: int, interpreter: Interpreter) -> None:
        """Observes the products of a graph that an interpreter has run, and runs its loops."""
        for operator, key in self._products[number]:
            for observer, index in zip(self._observers[key], (operator.inputs[0], operator.outputs[0]), strict=True):
                observer.add(interpreter.get_tensor(int(index), number))
        loops = [
            (options, [interpreter.get_tensor(index, number) for index in indices(operator.inputs)])
            for operator, options in _loops(self._graphs[number])
        ]
        for options, values in loops:
            condition, body = _parts(options)
            while self._step(condition, values)[0]:
                values = self._step(body, values)
                self.observe(body, self._stepping())

    def _step(self, number: int, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a body, or of a condition."""
        runner = self._stepping().get_signature_runner(_name(number))
        outputs = runner(**{f"x{position}": value for position, value in enumerate(values)})
        return [outputs[f"x{position}"] for position in range(len(outputs))]

    def _stepping(self) -> Interpreter:
        """An interpreter with a signature for each body and each condition."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        if self._interpreter is None:
            parts = {number for graph in self._graphs for _, options in _loops(graph) for number in _parts(options)}
            signatures = [_signature(self._graphs[number], number) for number in sorted(parts)]
            self._model.signatureDefs = [*self._model.signatureDefs, *signatures]
            with captured():
                self._interpreter = Interpreter(
                    model_content=write(self._model),
                    experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                    experimental_preserve_all_tensors=True,
                )
        return self._interpreter


def _loops(graph: Graph) -> list[tuple[OperatorT, WhileOptionsT]]:
    """The loops of a graph, with the graphs that they call."""
    return [(each, each.builtinOptions) for each in graph.subgraph.operators if graph.kind(each) == "WHILE"]


def _parts(options: WhileOptionsT) -> tuple[int, int]:
    """The indices of the graphs of the condition and of the body."""
    return int(options.condSubgraphIndex), int(options.bodySubgraphIndex)


def _signature(graph: Graph, number: int) -> SignatureDefT:
    """A signature of a graph, whose inputs and outputs are named by their positions."""
    signature = schema().SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _name(number).encode(), number
    signature.inputs, signature.outputs = (
        [_named(position, index) for position, index in enumerate(indices(each))]
        for each in (graph.subgraph.inputs, graph.subgraph.outputs)
    )
    return signature


def _named(position: int, index: int) -> TensorMapT:
    named = schema().TensorMapT()
    named.name, named.tensorIndex = f"x{position}".encode(), index
    return named


def _name(number: int) -> str:
    return f"step of {number}"
