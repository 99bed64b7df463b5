"""Products with weights as `FULLY_CONNECTED`, with biases and activations, as the converter makes them of constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, other_input, schema, shape_of, signature_of
from keras_transformer.export.tflite.weights.insert_weights import Inserter
from keras_transformer.export.tflite.weights.variable_data import VariableData

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_AFFINE = ("FULLY_CONNECTED", "CONV_2D")
_ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1")


def complete_products(model: ModelT, inserter: Inserter, folds_factors: bool = True) -> None:
    """Rewrites the products of a converted file whose second operand is a weight, in place.

    Args:
        model: `ModelT`.
        inserter: `Inserter` that the weights come from, if they were inputs.
        folds_factors: bool. Whether factors of the units behind a product go into its weights.
    """
    for graph in graphs(model):
        _complete(graph, inserter, folds_factors)


def _complete(graph: Graph, inserter: Inserter, folds_factors: bool) -> None:
    for operator in graph.subgraph.operators:
        if graph.kind(operator) == "BATCH_MATMUL":
            _connect(graph, operator, inserter)
        elif _is_relu(graph, operator):
            new = graph.operator("RELU", indices(operator.inputs), indices(operator.outputs))
            operator.__dict__.update(new.__dict__)
    left_out: set[int] = set()
    graph.find_uses()
    for operator in graph.subgraph.operators:
        if graph.kind(operator) in _AFFINE and graph.is_constant(int(operator.inputs[1])):
            left_out |= set(map(id, _Affine(graph, operator, inserter, folds_factors).absorbed()))
    graph.subgraph.operators[:] = [each for each in graph.subgraph.operators if id(each) not in left_out]


def _is_relu(graph: Graph, operator: OperatorT) -> bool:
    """Whether an operator is a leaky ReLU of slope 0, as `rewrites` makes them."""
    return graph.kind(operator) == "LEAKY_RELU" and operator.builtinOptions.alpha == 0


def _weight(graph: Graph, index: int) -> VariableData | None:
    data = graph.model.buffers[graph.tensors[index].buffer].data
    return data if isinstance(data, VariableData) else None


def _connect(graph: Graph, operator: OperatorT, inserter: Inserter) -> None:
    """Rewrites `x @ W`."""
    x, index = indices(operator.inputs)
    weight = _weight(graph, index)
    if weight is None or operator.builtinOptions.adjX or len(weight.shape) != 2:
        return
    if not operator.builtinOptions.adjY:
        weight = weight.transposed((1, 0))
        index = graph.add_tensor(weight.variable.path, "FLOAT32", weight.shape, inserter.buffer(weight))
    options = schema().FullyConnectedOptionsT()
    options.keepNumDims = True
    new = graph.operator("FULLY_CONNECTED", (x, index, -1), indices(operator.outputs), options)
    operator.__dict__.update(new.__dict__)


class _Affine:
    """A product or a convolution with a weight, which takes in what follows it."""

    def __init__(self, graph: Graph, operator: OperatorT, inserter: Inserter, folds_factors: bool) -> None:
        self._graph, self._operator, self._inserter = graph, operator, inserter
        self._folds_factors = folds_factors
        self._units = shape_of(graph.tensors[int(operator.inputs[1])])[0]

    def absorbed(self) -> Iterator[OperatorT]:
        """Takes in factors and biases of units, and an activation; yields the operators that computed them."""
        while not self._operator.builtinOptions.fusedActivationFunction and self._has_known_bias():
            output = int(self._operator.outputs[0])
            reader = self._graph.only_reader(output)
            if reader is None:
                return
            before = self._operator
            if self._graph.kind(reader) == "RESHAPE":  # It may come before an activation as well as after it.
                before, reader = reader, self._graph.only_reader(int(reader.outputs[0]))
                if reader is None or self._graph.kind(reader) not in _ACTIVATIONS:
                    return
            if not self._takes(reader, output):
                return
            before.outputs = reader.outputs
            yield reader

    def _takes(self, reader: OperatorT, output: int) -> bool:
        kind, options = self._graph.kind(reader), self._operator.builtinOptions
        if kind in _ACTIVATIONS:
            options.fusedActivationFunction = getattr(schema().ActivationFunctionType, kind)
            return True
        values = self._values_of_units(other_input(reader, output)) if kind in ("MUL", "ADD") else None
        if values is None or not self._has_shape_of(int(reader.outputs[0])):
            return False
        # The converter would have done it with weights that it sees.
        if kind == "MUL" and (not self._folds_factors or _weight(self._graph, int(self._operator.inputs[1])) is None):
            return False
        bias = self._bias()
        if kind == "ADD":
            self._set_bias(values if bias is None else bias + values)
        else:
            self._multiply(values)
            self._set_bias(None if bias is None else bias * values)
        options.fusedActivationFunction = reader.builtinOptions.fusedActivationFunction
        return True

    def _has_shape_of(self, index: int) -> bool:
        tensors = self._graph.tensors
        return signature_of(tensors[index]) == signature_of(tensors[int(self._operator.outputs[0])])

    def _values_of_units(self, index: int) -> np.ndarray | None:
        """A constant with one value for each unit, the last axis of the result; None for anything else."""
        values = self._graph.value(index)
        is_vector = values is not None and values.shape[-1:] == (self._units,) and values.size == self._units
        return values.reshape(-1) if values is not None and is_vector else None

    def _has_known_bias(self) -> bool:
        index = self._bias_index()
        return index < 0 or self._graph.is_constant(index)

    def _bias_index(self) -> int:
        return int(self._operator.inputs[2]) if len(self._operator.inputs) > 2 else -1

    def _bias(self) -> np.ndarray | None:
        """The values of the bias; None if there is none, or if it is 0."""
        values = self._graph.value(self._bias_index())
        return None if values is None or not values.any() else values

    def _set_bias(self, values: np.ndarray | None) -> None:
        if values is not None:
            index = self._graph.add_constant(self._name("bias"), "FLOAT32", np.asarray(values, "float32"))
            self._operator.inputs = np.array([*indices(self._operator.inputs)[:2], index], "int32")

    def _multiply(self, factors: np.ndarray) -> None:
        x, index, *rest = indices(self._operator.inputs)
        weight = _weight(self._graph, index)
        if weight is not None:
            new = weight.times(factors.reshape(-1, *[1] * (len(weight.shape) - 1)))
            buffer = self._inserter.buffer(new)
            index = self._graph.add_tensor(f"{weight.variable.path}/multiplied", "FLOAT32", new.shape, buffer)
            self._operator.inputs = np.array([x, index, *rest], "int32")

    def _name(self, part: str) -> str:
        return f"{self._graph.tensors[int(self._operator.outputs[0])].name.decode()}/{part}"
