"""Fewer and lighter operators in a converted file; values change by rounding only.

A norm comes out of Keras as `x * s + (beta - mean * s)` with `s = gamma * rsqrt`, six passes over a whole tensor where
`(x - mean) * rsqrt * gamma + beta` takes five lighter ones. A constant factor behind a product goes into its weights, as
the converter does where shapes are fixed: then signatures of fixed and of dynamic shapes share those weights.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import add_buffer, indices, other_input, schema, signature_of, size_of
from keras_transformer.export.tflite.weights.variable_data import VariableData

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


def fuse(model: ModelT, folds_factors: bool = True) -> None:
    """Fuses the operators of a float file, and stores equal constants once.

    Args:
        model: `ModelT`, changed in place.
        folds_factors: bool. Whether factors behind products go into weights.
    """
    weights = _Weights(model)
    weights.merge()
    for graph in graphs(model):
        _lighter_norms(graph)
        if folds_factors:
            _fold_factors(graph, weights)
    _drop_unused(model)


def _lighter_norms(graph: Graph) -> int:
    """Rewrites every norm; returns how many."""
    graph.find_uses()
    found = [parts for operator in graph.subgraph.operators if (parts := _norm_parts(graph, operator))]
    old = {id(each) for operators, _ in found for each in operators}
    new = {id(operators[-1]): _norm(graph, operators[-1], *tensors) for operators, tensors in found}
    graph.subgraph.operators[:] = [
        each
        for operator in graph.subgraph.operators
        for each in new.get(id(operator), () if id(operator) in old else (operator,))
    ]
    return len(found)


def _norm_parts(graph: Graph, operator: OperatorT) -> Any:
    """The operators and tensors of a norm, given its product of `gamma` and the inverse deviation, or None."""
    if graph.kind(operator) != "MUL" or len(graph.readers[int(operator.outputs[0])]) != 2:
        return None
    gamma = next((each for each in indices(operator.inputs) if graph.value(each) is not None), None)
    inverse = None if gamma is None else graph.makers.get(other_input(operator, gamma))
    if inverse is None or graph.kind(inverse) != "RSQRT":
        return None
    scale = int(operator.outputs[0])
    products = graph.readers[scale]
    if scale in graph.ends or any(graph.kind(each) != "MUL" for each in products):
        return None
    shift = next((each for each in products if _is_made_by(graph, other_input(each, scale), "NEG")), None)
    scaled = next((each for each in products if each is not shift), None)
    if shift is None or scaled is None:
        return None
    add = graph.only_reader(int(shift.outputs[0]))
    last = graph.only_reader(int(scaled.outputs[0]))
    if not add or not last or graph.kind(add) != "ADD" or graph.kind(last) != "ADD":
        return None
    beta, x = other_input(add, int(shift.outputs[0])), other_input(scaled, scale)
    joins = graph.only_reader(int(add.outputs[0])) is last
    if not joins or not _same_shape(graph, x, int(last.outputs[0])) or any(map(_activates, (shift, scaled, add, last))):
        return None
    negated = graph.makers[other_input(shift, scale)]
    mean, operators = int(negated.inputs[0]), [operator, shift, scaled, add, last]
    if graph.only_reader(int(negated.outputs[0])):
        operators.insert(0, negated)
    return operators, (x, mean, int(inverse.outputs[0]), gamma, beta)


def _is_made_by(graph: Graph, index: int, kind: str) -> bool:
    return index in graph.makers and graph.kind(graph.makers[index]) == kind


def _same_shape(graph: Graph, first: int, second: int) -> bool:
    return signature_of(graph.tensors[first]) == signature_of(graph.tensors[second])


def _activates(operator: OperatorT) -> bool:
    options = operator.builtinOptions
    return options is not None and options.fusedActivationFunction != 0


def _norm(graph: Graph, last: OperatorT, x: int, mean: int, inverse: int, gamma: int, beta: int) -> list[OperatorT]:
    """The operators of a norm in place of those that end in `last`."""
    output = int(last.outputs[0])
    name, shape = graph.tensors[output].name.decode(), signature_of(graph.tensors[output])
    centered, normed, scaled = (
        graph.add_tensor(f"{name}/{part}", "FLOAT32", shape) for part in ("centered", "normed", "scaled")
    )
    return [
        graph.operator("SUB", (x, mean), (centered,), schema().SubOptionsT()),
        graph.operator("MUL", (centered, inverse), (normed,), schema().MulOptionsT()),
        graph.operator("MUL", (normed, gamma), (scaled,), schema().MulOptionsT()),
        graph.operator("ADD", (scaled, beta), (output,), schema().AddOptionsT()),
    ]


class _Weights:
    """Constants, each stored once for all graphs."""

    def __init__(self, model: ModelT) -> None:
        self.model = model
        self.digests = {index: _digest(each.data) for index, each in enumerate(model.buffers) if size_of(each)}
        self.buffers: dict[bytes, int] = {}
        for index, digest in self.digests.items():
            self.buffers.setdefault(digest, index)

    def merge(self) -> None:
        """Lets the constants of all graphs share buffers of equal content; results of operators keep theirs."""
        for graph in graphs(self.model):
            written = {index for each in graph.subgraph.operators for index in indices(each.outputs)}
            written.update(indices(graph.subgraph.inputs), indices(graph.subgraph.outputs))
            for index, tensor in enumerate(graph.tensors):
                if index not in written and not tensor.isVariable and tensor.buffer in self.digests:
                    tensor.buffer = self.buffers[self.digests[tensor.buffer]]

    def times(self, buffer: int, factor: float) -> int:
        """Returns the index of a buffer with the values of another, multiplied."""
        data: Any = self.model.buffers[buffer].data
        if isinstance(data, VariableData):
            data = data.times(factor)
        else:
            data = (np.frombuffer(np.ascontiguousarray(data), "float32") * np.float32(factor)).view("uint8")
        key = _digest(data)
        if key not in self.buffers:
            self.buffers[key] = add_buffer(self.model, data)
        return self.buffers[key]


def _digest(data: Any) -> bytes:
    """Bytes that differ for different content; a variable, which may be large, is not read."""
    content: Any = data.key.encode() if isinstance(data, VariableData) else np.ascontiguousarray(data)
    return hashlib.sha256(content).digest()


def _fold_factors(graph: Graph, weights: _Weights) -> int:
    """Folds constant factors behind `FULLY_CONNECTED` and an optional `RESHAPE` into its weights; returns how many."""
    folded: set[int] = set()
    graph.find_uses()
    for operator in graph.subgraph.operators:
        factor = graph.kind(operator) == "MUL" and not _activates(operator) and _factor(graph, operator)
        if not factor:
            continue
        source = next(each for each in indices(operator.inputs) if graph.value(each) is None)
        product = _product_behind(graph, source)
        if product is not None:
            _multiply(graph, product, factor, weights)
            _bypass(graph, operator, source)
            folded.add(id(operator))
    graph.subgraph.operators[:] = [each for each in graph.subgraph.operators if id(each) not in folded]
    return len(folded)


def _factor(graph: Graph, operator: OperatorT) -> float | None:
    """The scalar that an operator multiplies by, or None."""
    values = [graph.value(index) for index in indices(operator.inputs)]
    constants = [each for each in values if each is not None and each.size == 1 and each.dtype == np.float32]
    return float(constants[0].item()) if len(constants) == 1 and sum(each is None for each in values) == 1 else None


def _product_behind(graph: Graph, index: int) -> OperatorT | None:
    """The `FULLY_CONNECTED` that produces a tensor, through an optional `RESHAPE`, if nothing else reads it."""
    maker = graph.makers.get(index)
    readers = [each for each in graph.readers[index] if graph.kind(each) != "SHAPE"]  # Shapes do not depend on factors.
    if maker is None or len(readers) != 1 or index in graph.ends:
        return None
    if graph.kind(maker) == "RESHAPE":
        return _product_behind(graph, int(maker.inputs[0]))
    constant = graph.kind(maker) == "FULLY_CONNECTED" and graph.is_constant(int(maker.inputs[1]))
    biased = constant and (len(maker.inputs) < 3 or maker.inputs[2] < 0 or graph.is_constant(int(maker.inputs[2])))
    return maker if biased and not _activates(maker) else None


def _multiply(graph: Graph, operator: OperatorT, factor: float, weights: _Weights) -> None:
    inputs = list(indices(operator.inputs))
    for position in range(1, len(inputs)):
        if inputs[position] >= 0:
            tensor = graph.tensors[inputs[position]]
            name, buffer = f"{tensor.name.decode()}/multiplied", weights.times(tensor.buffer, factor)
            inputs[position] = graph.add_tensor(name, "FLOAT32", signature_of(tensor), buffer)
    operator.inputs = np.array(inputs, "int32")


def _bypass(graph: Graph, operator: OperatorT, source: int) -> None:
    """Lets the consumers of an operator's result read its source instead."""
    output = int(operator.outputs[0])
    if output in graph.ends:
        graph.subgraph.outputs = np.where(graph.subgraph.outputs == output, source, graph.subgraph.outputs)
        graph.ends.add(source)
    for reader in graph.readers[output]:
        reader.inputs = np.where(np.asarray(reader.inputs) == output, source, reader.inputs).astype("int32")
    graph.readers[source] = [each for each in graph.readers[source] if each is not operator] + graph.readers[output]


def _drop_unused(model: ModelT) -> None:
    """Clears the buffers of unused constants."""
    used = {0}
    for graph in graphs(model):
        read_here = {index for each in graph.subgraph.operators for index in indices(each.inputs)}
        read_here.update(indices(graph.subgraph.outputs), indices(graph.subgraph.inputs))
        used.update(graph.tensors[index].buffer for index in read_here if index >= 0)
        for index, tensor in enumerate(graph.tensors):
            tensor.buffer = tensor.buffer if index in read_here else 0
    used.update(each.buffer for each in model.metadata or ())
    for index, buffer in enumerate(model.buffers):
        if index not in used:
            buffer.data = None
