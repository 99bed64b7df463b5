"""Outliers of activations in TFLite: `x @ W` as `clip(x) @ W + (x - clip(x)) @ W`.

Integer products quantize each row of activations with one scale, and a few large numbers make it coarse for all others.
Apart from each other, both parts are exact enough. They are rows of one product, which reads its weights once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import add_buffer, schema, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# Numbers above this multiple of the mean magnitude of their row are outliers.
_BOUND = 4.0
_LAYOUT = ("RESHAPE", "TRANSPOSE")


def separate_outliers(model: ModelT) -> int:
    """Separates the outliers of the integer products that read tokens into a cache.

    A cached error is read again with every further token. Encoders and other models keep single products, which take half
    the time on many rows.

    Args:
        model: `ModelT` with weights in 8 or 4 bits; changed in place.

    Returns:
        int, how many products were changed.
    """
    halves: dict[int, int] = {}
    return sum(_Products(graph, halves).separate() for graph in _steps(model))


def _steps(model: ModelT) -> Iterator[Graph]:
    """The graphs of a decoder and its loops; of an encoder-decoder without the encoder and the graph around the loop."""
    names = {int(each.subgraphIndex): each.signatureKey.decode().split("_")[0] for each in model.signatureDefs or ()}
    if "decode" not in names.values():
        return
    others = {"encode", "generate"} if "encode" in names.values() else set()
    yield from (graph for index, graph in enumerate(graphs(model)) if names.get(index) not in others)


class _Products:
    """The integer products of one graph.

    Args:
        graph: `Graph`, changed in place.
        halves: dict of the buffer of a bias to that of its half, shared by all graphs.
    """

    def __init__(self, graph: Graph, halves: dict[int, int]) -> None:
        self._graph, self._halves = graph, halves
        graph.find_uses()

    def separate(self) -> int:
        """Separates the outliers of all activations that may have any; returns how many products read them."""
        found: dict[int, list[Any]] = {}
        for operator in self._graph.subgraph.operators:
            if self._is_integer_product(operator) and not self._is_average(int(operator.inputs[0])):
                found.setdefault(int(operator.inputs[0]), []).append(operator)
        if found:
            self._axis = self._graph.add_constant("outliers/axis", "INT32", np.array([-1], "int32"))
            self._bound = self._graph.add_constant("outliers/bound", "FLOAT32", np.array(_BOUND, "float32"))
            self._rows = self._graph.add_constant("outliers/rows", "INT32", np.array(0, "int32"))
        for source, operators in found.items():
            both = self._parts(source, operators[0])
            for operator in operators:
                self._add(operator, both)
        return sum(map(len, found.values()))

    def _is_integer_product(self, operator: OperatorT) -> bool:
        graph = self._graph
        if graph.kind(operator) != "FULLY_CONNECTED":
            return False
        (source, weight), types = (graph.tensors[index] for index in operator.inputs[:2]), schema().TensorType
        is_constant = graph.is_constant(int(operator.inputs[1]))
        biases = [index for index in operator.inputs[2:] if index >= 0]
        is_plain = len(source.shape) > 1 and all(graph.value(index) is not None for index in biases)
        return is_plain and is_constant and source.type == types.FLOAT32 and weight.type in (types.INT8, types.INT4)

    def _is_average(self, index: int) -> bool:
        """Whether an activation is the output of attention: weighted means have no outliers."""
        maker = self._graph.makers.get(index)
        while maker is not None and self._graph.kind(maker) in _LAYOUT:
            maker = self._graph.makers.get(int(maker.inputs[0]))
        return maker is not None and self._graph.kind(maker) == "BATCH_MATMUL"

    def _parts(self, source: int, reader: OperatorT) -> int:
        """The tensor with the clipped rows of an activation, and then the rows of what they lack."""
        graph, types = self._graph, schema()
        sizes = signature_of(graph.tensors[source])
        rows = (*sizes[:-1], 1)

        def tensor(part: str, shape: tuple[int | None, ...] = sizes) -> int:
            return graph.add_tensor(f"outliers_{source}/{part}", "FLOAT32", shape)

        size, mean, bound, least = tensor("size"), tensor("mean", rows), tensor("bound", rows), tensor("least", rows)
        below, clipped, rest, both = tensor("below"), tensor("clipped"), tensor("rest"), tensor("both", _doubled(sizes))
        reducer, joined = types.ReducerOptionsT(), types.ConcatenationOptionsT()
        reducer.keepDims, joined.axis = True, 0
        position = graph.subgraph.operators.index(reader)
        # Inserted in reverse order, each at the same position.
        graph.insert(position, "CONCATENATION", (clipped, rest), (both,), joined)
        graph.insert(position, "SUB", (source, clipped), (rest,), types.SubOptionsT())
        graph.insert(position, "MAXIMUM", (below, least), (clipped,), types.MaximumMinimumOptionsT())
        graph.insert(position, "MINIMUM", (source, bound), (below,), types.MaximumMinimumOptionsT())
        graph.insert(position, "NEG", (bound,), (least,), types.NegOptionsT())
        graph.insert(position, "MUL", (mean, self._bound), (bound,), types.MulOptionsT())
        graph.insert(position, "MEAN", (size, self._axis), (mean,), reducer)
        graph.insert(position, "ABS", (source,), (size,), types.AbsOptionsT())
        return both

    def _add(self, operator: OperatorT, both: int) -> None:
        """Lets a product read both parts, and adds its results."""
        graph, types = self._graph, schema()
        _, weight, *bias = map(int, operator.inputs)
        (output,) = map(int, operator.outputs)
        sizes = signature_of(graph.tensors[output])
        product = graph.add_tensor(f"product_{output}/both", "FLOAT32", _doubled(sizes))
        parts = tuple(graph.add_tensor(f"product_{output}/{part}", "FLOAT32", sizes) for part in ("clipped", "rest"))
        options, split = types.AddOptionsT(), types.SplitOptionsT()
        options.fusedActivationFunction = operator.builtinOptions.fusedActivationFunction
        operator.builtinOptions.fusedActivationFunction = types.ActivationFunctionType.NONE
        split.numSplits = 2
        halves = self._half(bias[0]) if bias and bias[0] >= 0 else -1
        operator.inputs, operator.outputs = np.array([both, weight, halves], "int32"), np.array([product], "int32")
        position = graph.subgraph.operators.index(operator) + 1
        graph.insert(position, "ADD", parts, (output,), options)
        graph.insert(position, "SPLIT", (self._rows, product), parts, split)

    def _half(self, bias: int) -> int:
        """Half of a bias, which is added to both parts."""
        tensor = self._graph.tensors[bias]
        if tensor.buffer not in self._halves:
            values = self._graph.value(bias)
            assert values is not None
            self._halves[tensor.buffer] = add_buffer(self._graph.model, values / np.float32(2))
        name = f"{tensor.name.decode()}/half"
        return self._graph.add_tensor(name, "FLOAT32", signature_of(tensor), self._halves[tensor.buffer])


def _doubled(sizes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """A shape with twice the rows."""
    return (None if sizes[0] is None else 2 * sizes[0], *sizes[1:])
