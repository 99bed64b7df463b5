"""Weights as constants in place of the inputs that stand for them while the converter works.

TensorFlow's converter copies each constant several times. It never sees the large weights: they are inputs of its graphs.
Here they become constants, which all signatures share, and what the converter does with constants is done: their
reshapes and transpositions are left out, and loops that hand them on read them directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema
from keras_transformer.export.tflite.weights.variable_data import VariableData

if TYPE_CHECKING:
    import keras
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


class Inserter:
    """Puts Keras variables in place of inputs.

    Args:
        model: `ModelT`, changed in place.
    """

    def __init__(self, model: ModelT) -> None:
        self._model = model
        self._buffers: dict[str, int] = {}

    def insert_into_signatures(self, variables: Mapping[str, keras.Variable]) -> None:
        """Replaces inputs of all signatures.

        Args:
            variables: dict of the name of an input, which some or all signatures have, to the variable.
        """
        for signature in self._model.signatureDefs:
            named = {each.tensorIndex: variables.get(each.name.decode()) for each in signature.inputs}
            signature.inputs = [each for each in signature.inputs if named[each.tensorIndex] is None]
            found = {index: VariableData(each) for index, each in named.items() if each is not None}
            self.insert(Graph(self._model, self._model.subgraphs[signature.subgraphIndex]), found)

    def insert(self, graph: Graph, weights: dict[int, VariableData]) -> None:
        """Replaces inputs of one graph, by index of their tensors."""
        subgraph = graph.subgraph
        subgraph.inputs = _without(
            subgraph.inputs, [at for at, index in enumerate(subgraph.inputs) if index in weights]
        )
        subgraph.operators[:] = [each for each in subgraph.operators if not self._is_folded(graph, each, weights)]
        for index, weight in weights.items():
            self._make_constant(graph, index, weight)

    def _is_folded(self, graph: Graph, operator: OperatorT, weights: dict[int, VariableData]) -> bool:
        """Adapts one operator; whether its result is a weight too, so that it can be left out."""
        kind, inputs = graph.kind(operator), indices(operator.inputs)
        if kind == "WHILE":
            self._into_loop(graph, operator, weights)
        if kind not in ("RESHAPE", "TRANSPOSE") or inputs[0] not in weights:
            return False
        sizes, output = graph.value(inputs[1]), int(operator.outputs[0])
        if sizes is None or output in graph.subgraph.outputs:
            return False
        weight = weights[inputs[0]]
        weights[output] = weight.reshaped(tuple(sizes)) if kind == "RESHAPE" else weight.transposed(tuple(sizes))
        return True

    def _into_loop(self, graph: Graph, operator: OperatorT, weights: dict[int, VariableData]) -> None:
        """Takes the weights that a loop hands on unchanged out of its state."""
        options = operator.builtinOptions
        body, condition = (
            self._model.subgraphs[each] for each in (options.bodySubgraphIndex, options.condSubgraphIndex)
        )
        pairs = enumerate(zip(operator.inputs, body.inputs, body.outputs, strict=True))
        places = [at for at, (index, start, end) in pairs if int(index) in weights and start == end]
        given = [weights[int(operator.inputs[at])] for at in places]
        weights.update(zip((int(operator.outputs[at]) for at in places), given, strict=True))
        for each in (body, condition):
            arguments = [int(each.inputs[at]) for at in places]
            self.insert(Graph(self._model, each), dict(zip(arguments, given, strict=True)))
        body.outputs = _without(body.outputs, places)
        operator.inputs, operator.outputs = _without(operator.inputs, places), _without(operator.outputs, places)

    def _make_constant(self, graph: Graph, index: int, weight: VariableData) -> None:
        tensor = graph.tensors[index]
        tensor.name = weight.variable.path.encode()
        tensor.buffer = self.buffer(weight)

    def buffer(self, weight: VariableData) -> int:
        """The index of a buffer with a weight, which all graphs share."""
        if weight.key not in self._buffers:
            self._model.buffers.append(schema().BufferT())
            self._model.buffers[-1].data = weight
            self._buffers[weight.key] = len(self._model.buffers) - 1
        return self._buffers[weight.key]


def _without(indices: Sequence[int] | np.ndarray, places: list[int]) -> np.ndarray:
    return np.delete(np.asarray(indices, "int32"), places)
