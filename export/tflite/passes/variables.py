"""Signatures whose state is kept in variables of the interpreter, instead of being passed to each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SignatureDefT, TensorMapT

SAVE, RESTORE, COUNT = "save", "restore", "count"
_CONTAINER = b"keras_transformer"


def keep_state(model: ModelT, state: Mapping[str, np.ndarray], names: Mapping[str, str]) -> None:
    """Makes variables of the state that the signatures of a model take and return, in place.

    A variable is assigned its first value when the first signature is called. The signatures `save`, which returns all
    variables, and `restore`, which takes them, are added; `restore` returns how many there are.

    Args:
        model: `ModelT`.
        state: dict of the name of a variable to its first value.
        names: dict of each input or output that is state, in any signature, to the name of its variable.
    """
    made = graphs(model)
    first = len(made)
    for definition in model.signatureDefs:
        _Stateful(made[definition.subgraphIndex], definition, names).rewrite(first)
    _add_first_values(model, state)
    for key, fill in ((SAVE, _fill_save), (RESTORE, _fill_restore)):
        graph = _new_graph(model, key)
        graph.subgraph.operators.append(_call_once(graph, first))
        definition = schema().SignatureDefT()
        definition.signatureKey, definition.subgraphIndex = key.encode(), len(model.subgraphs) - 1
        definition.inputs, definition.outputs = fill(graph, state)
        graph.subgraph.inputs = np.array([each.tensorIndex for each in definition.inputs], "int32")
        graph.subgraph.outputs = np.array([each.tensorIndex for each in definition.outputs], "int32")
        model.signatureDefs.append(definition)


class _Stateful:
    """A signature whose state moves into variables."""

    def __init__(self, graph: Graph, definition: SignatureDefT, names: Mapping[str, str]) -> None:
        self._graph, self._definition, self._names = graph, definition, names

    def rewrite(self, first: int) -> None:
        """Reads the variables before everything else, and assigns them after it."""
        read, self._definition.inputs = self._parted(self._definition.inputs)
        assigned, self._definition.outputs = self._parted(self._definition.outputs)
        subgraph = self._graph.subgraph
        subgraph.inputs = np.array([each for each in subgraph.inputs if each not in read.values()], "int32")
        subgraph.outputs = np.array([each.tensorIndex for each in self._definition.outputs], "int32")
        handles = {name: _handle(self._graph, name) for name in {**read, **assigned}}
        before = [_call_once(self._graph, first)]
        before += [_handle_operator(self._graph, name, handle) for name, handle in handles.items()]
        before += [_operator(self._graph, "READ_VARIABLE", [handles[name]], [each]) for name, each in read.items()]
        after = [
            _operator(self._graph, "ASSIGN_VARIABLE", [handles[name], each], []) for name, each in assigned.items()
        ]
        subgraph.operators = [*before, *subgraph.operators, *after]

    def _parted(self, tensors: Sequence[TensorMapT]) -> tuple[dict[str, int], list[TensorMapT]]:
        """The tensors of variables by name, and the other ones."""
        state = {self._names[key]: each.tensorIndex for each in tensors if (key := each.name.decode()) in self._names}
        return state, [each for each in tensors if each.name.decode() not in self._names]


def _add_first_values(model: ModelT, state: Mapping[str, np.ndarray]) -> None:
    """Adds the subgraph that assigns the first values."""
    graph = _new_graph(model, "first_values")
    for name, value in state.items():
        handle = _handle(graph, name)
        value = np.asarray(value)
        constant = graph.add_constant(f"{name}/value", value.dtype.name.upper(), value)
        graph.subgraph.operators.append(_handle_operator(graph, name, handle))
        graph.subgraph.operators.append(_operator(graph, "ASSIGN_VARIABLE", [handle, constant], []))
    graph.subgraph.inputs = graph.subgraph.outputs = np.array([], "int32")


def _fill_save(graph: Graph, state: Mapping[str, np.ndarray]) -> tuple[list[TensorMapT], list[TensorMapT]]:
    outputs = []
    for name, value in state.items():
        handle, tensor = _handle(graph, name), _tensor(graph, name, value)
        graph.subgraph.operators.append(_handle_operator(graph, name, handle))
        graph.subgraph.operators.append(_operator(graph, "READ_VARIABLE", [handle], [tensor]))
        outputs.append(_named(name, tensor))
    return [], outputs


def _fill_restore(graph: Graph, state: Mapping[str, np.ndarray]) -> tuple[list[TensorMapT], list[TensorMapT]]:
    inputs = []
    for name, value in state.items():
        handle, tensor = _handle(graph, name), _tensor(graph, name, value)
        graph.subgraph.operators.append(_handle_operator(graph, name, handle))
        graph.subgraph.operators.append(_operator(graph, "ASSIGN_VARIABLE", [handle, tensor], []))
        inputs.append(_named(name, tensor))
    return inputs, [_named(COUNT, graph.add_constant(COUNT, "INT32", np.array(len(state), "int32")))]


def _new_graph(model: ModelT, name: str) -> Graph:
    subgraph = schema().SubGraphT()
    subgraph.name, subgraph.tensors, subgraph.operators = name.encode(), [], []
    model.subgraphs.append(subgraph)
    return Graph(model, subgraph)


def _handle(graph: Graph, name: str) -> int:
    return graph.add_tensor(f"{name}/handle", "RESOURCE", [])


def _tensor(graph: Graph, name: str, value: np.ndarray) -> int:
    return graph.add_tensor(name, np.asarray(value).dtype.name.upper(), np.shape(value))


def _handle_operator(graph: Graph, name: str, handle: int) -> OperatorT:
    options = schema().VarHandleOptionsT()
    options.container, options.sharedName = _CONTAINER, name.encode()
    return graph.operator("VAR_HANDLE", [], [handle], options)


def _call_once(graph: Graph, subgraph: int) -> OperatorT:
    options = schema().CallOnceOptionsT()
    options.initSubgraphIndex = subgraph
    return graph.operator("CALL_ONCE", [], [], options)


def _operator(graph: Graph, kind: str, inputs: list[int], outputs: list[int]) -> OperatorT:
    return graph.operator(kind, inputs, outputs)


def _named(name: str, tensor: int) -> TensorMapT:
    named = schema().TensorMapT()
    named.name, named.tensorIndex = name.encode(), tensor
    return named
