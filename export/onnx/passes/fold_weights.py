"""Weights as initializers of a converted graph, named after their variables.

The graphs are traced with their weights as inputs, so that the converter does not touch the values. Here each such input
becomes an initializer, and operators that only move data are applied to weights, when the file is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray, LazyArray
from keras_transformer.export.onnx.graph import all_graphs, all_nodes, attributes_of, name_of
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of, tensor_of

_SMALL = 1024
# Operators that only move data.
_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "Identity": lambda x: x,
    "Reshape": lambda x, shape: x.reshape(_sizes(x, shape)),
    "Squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes)),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}


def fold_weights(model: ir.Model, weights: Mapping[str, AnyArray]) -> list[str]:
    """Makes initializers of the inputs of a graph that are weights, and applies operators to them that only move data.

    Args:
        model: `onnx_ir.Model`, changed in place.
        weights: dict of input name to array; inputs that the graph no longer has are ignored.

    Returns:
        List of the names of the initializers that the graph reads of them, lazy where the weights are.
    """
    graph = model.graph
    given = [value for value in graph.inputs if value.name in weights]
    _multiply_by_table(model, set(given))
    for value in given:
        graph.inputs.remove(value)
        value.const_value = tensor_of(weights[name_of(value)], value.name)
    shapes = {name_of(value): value.shape for value in given}
    found, origins = _fold(graph, given)
    return _register(graph, [value for value in found if value.uses()], origins, shapes)


def _register(
    graph: ir.Graph,
    weights: list[ir.Value],
    origins: Mapping[ir.Value, str],
    shapes: Mapping[str, ir.Shape | None],
) -> list[str]:
    """Adds weights to the initializers, folded ones under the name of their origin, with a number from the second on.

    A transposed square matrix has a number too: under the name alone it would be taken for the weight.
    """
    taken = {name_of(value) for value in weights if value not in origins}
    for value in weights:
        if value in origins:
            label, number = origins[value], 1
            while label in taken or (number == 1 and value.shape == shapes[label]):
                number += 1
                label = f"{origins[value]}~{number}"
            taken.add(label)
            value.name = label
        graph.initializers.add(value)
    return [name_of(value) for value in weights]


def _multiply_by_table(model: ir.Model, weights: set[ir.Value]) -> None:
    """`MatMul(x, Transpose(weight))` of matrices as `Gemm` with `transB`, without a transposed copy of a table."""
    found = [
        node for node in all_nodes(model.graph) if node.op_type == "MatMul" and _is_turned(node.inputs[1], weights)
    ]
    ranks = _ranks(model) if found else {}
    for node in found:
        x, turned = node.inputs
        assert turned is not None
        turn = turned.producer()
        if turn is not None and ranks.get(name_of(x)) == 2:
            node.op_type = "Gemm"
            node.replace_input_with(1, turn.inputs[0])
            node.attributes.add(ir.AttrInt64("transB", 1))
            if turn.graph is not None and not turned.uses() and not turned.is_graph_output():
                turn.graph.remove(turn, safe=True)


def _is_turned(value: ir.Value | None, weights: set[ir.Value]) -> bool:
    """Whether a value is a transposed matrix of the weights."""
    node = None if value is None else value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Transpose" else None
    return source is not None and source in weights and source.shape is not None and len(source.shape) == 2


def _ranks(model: ir.Model) -> dict[str, int]:
    """The ranks of values by name, as far as ONNX infers them."""
    inferred = ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model)))
    values = [value for node in all_nodes(inferred.graph) for value in (*node.inputs, *node.outputs)]
    return {name_of(each): len(each.shape) for each in values if each is not None and each.shape is not None}


def _fold(graph: ir.Graph, weights: list[ir.Value]) -> tuple[list[ir.Value], dict[ir.Value, str]]:
    """Applies operators that only move data to weights.

    Returns:
        `(weights, origins)`: the weights with the results, and dict of a result to the name of its origin.
    """
    found, known, origins = list(weights), set(weights), dict[ir.Value, str]()
    every = [value for node in all_nodes(graph) for value in node.inputs if value is not None]
    counts = {value: len(value.uses()) for value in every}
    constants = {
        value: np.asarray(constant_of(value))
        for each in all_graphs(graph)
        for value in each.initializers.values()
        if value.const_value is not None and value.const_value.size < _SMALL
    }
    for node in [node for each in all_graphs(graph) for node in each]:
        first, *others = node.inputs or [None]
        if (
            first is None
            or first not in known
            or not constants.keys() >= set(others)
            or node.outputs[0].is_graph_output()
        ):
            continue
        arguments = [constants[each] for each in others if each is not None]
        folded = _folded(node, constant_of(first), arguments, counts[first] == 1)
        if folded is not None:
            value = ir.Value(name=node.outputs[0].name)
            value.const_value = tensor_of(folded, value.name)
            value.dtype, value.shape = value.const_value.dtype, ir.Shape(folded.shape)
            counts[value] = counts.get(node.outputs[0], 0)
            node.outputs[0].replace_all_uses_with(value)
            assert node.graph is not None
            node.graph.remove(node, safe=True)
            origins[value] = origins.get(first, name_of(first))
            known.add(value)
            found.append(value)
    return found, origins


def _folded(node: ir.Node, array: AnyArray, arguments: list[np.ndarray], is_alone: bool) -> AnyArray | None:
    change: Callable[[np.ndarray], np.ndarray]
    if node.op_type in _FOLDS and not node.attributes:
        change = functools.partial(_apply, _FOLDS[node.op_type], arguments)
    # A transposed copy in addition to the original would double the file; the runtime transposes it when it loads.
    elif node.op_type == "Transpose" and is_alone:
        change = functools.partial(np.transpose, axes=attributes_of(node).get("perm"))
    else:
        return None
    if isinstance(array, LazyArray):
        texts = (str(each.tolist()) for each in arguments)
        return array.map(change, (node.op_type, *texts, str(attributes_of(node))))
    return change(array)


def _apply(operator: Callable[..., np.ndarray], arguments: list[np.ndarray], array: np.ndarray) -> np.ndarray:
    return operator(array, *arguments)


def _sizes(array: np.ndarray, shape: np.ndarray) -> list[int]:
    return [array.shape[axis] if size == 0 else int(size) for axis, size in enumerate(shape)]
