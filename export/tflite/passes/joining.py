"""Two TFLite files as one: the outputs of the first are the inputs of the second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT


def join(front: ModelT, model: ModelT, signature: str) -> ModelT:
    """Puts one signature of a model behind a file, whose outputs have the names of its inputs.

    The operators of the signature follow those of the file in one graph, as the converter would have written them. Other
    signatures of the model are left out.

    Args:
        front: `ModelT` of one signature; changed in place.
        model: `ModelT`; changed in place.
        signature: name of a signature of `model`.

    Returns:
        `ModelT` with one signature of that name, from the inputs of `front` to the outputs of `model`.
    """
    first = front.signatureDefs[0]
    second = next(each for each in model.signatureDefs if each.signatureKey == signature.encode())
    graphs = _reached(model, second.subgraphIndex)
    codes, buffers = len(front.operatorCodes), len(front.buffers)
    front.operatorCodes += model.operatorCodes
    front.buffers += model.buffers[1:]  # Buffer 0 stands for none.
    numbers = {number: len(front.subgraphs) + place for place, number in enumerate(graphs[1:])}
    for number in graphs:
        graph = model.subgraphs[number]
        for tensor in graph.tensors:
            tensor.buffer += (buffers - 1) * (tensor.buffer > 0)
        for operator in graph.operators:
            operator.opcodeIndex += codes
            for options, name in _called(operator):
                setattr(options, name, numbers[getattr(options, name)])
    front.subgraphs += [model.subgraphs[number] for number in graphs[1:]]
    main = front.subgraphs[first.subgraphIndex]
    given = {each.name: each.tensorIndex for each in first.outputs}
    places = {each.tensorIndex: given[each.name] for each in second.inputs}
    _append(main, model.subgraphs[graphs[0]], places)
    first.signatureKey, first.outputs = second.signatureKey, second.outputs
    for each in first.outputs:
        each.tensorIndex = places[each.tensorIndex]
    front.signatureDefs, front.description = [first], model.description
    for entry in model.metadata or ():
        entry.buffer += buffers - 1
    own = {entry.name for entry in model.metadata or ()}
    front.metadata = [entry for entry in front.metadata or () if entry.name not in own] + (model.metadata or [])
    return front


def _append(main: SubGraphT, graph: SubGraphT, places: dict[int, int]) -> None:
    """Appends the operators of a graph to another one.

    Args:
        main: `SubGraphT`, changed in place.
        graph: `SubGraphT`.
        places: dict of the tensors of the graph that are tensors of `main` to these; gets all others.
    """
    for number, tensor in enumerate(graph.tensors):
        if number not in places:
            places[number] = len(main.tensors)
            main.tensors.append(tensor)
    for operator in graph.operators:
        operator.inputs, operator.outputs = (_moved(each, places) for each in (operator.inputs, operator.outputs))
        if operator.intermediates is not None:
            operator.intermediates = _moved(operator.intermediates, places)
        main.operators.append(operator)
    main.outputs = _moved(graph.outputs, places)


def _moved(indices: Sequence[int] | np.ndarray, places: Mapping[int, int]) -> np.ndarray:
    """Indices of tensors; -1 stands for none."""
    return np.array([each if each < 0 else places[each] for each in np.asarray(indices).tolist()], "int32")


def _reached(model: ModelT, start: int) -> list[int]:
    """The numbers of a graph and of those that it runs, each once."""
    found = [start]
    for number in found:
        called = [
            getattr(options, name)
            for operator in model.subgraphs[number].operators
            for options, name in _called(operator)
        ]
        found += [each for each in dict.fromkeys(called) if each not in found]
    return found


def _called(operator: OperatorT) -> Iterator[tuple[Any, str]]:
    """The options of an operator, and those of their attributes that are numbers of graphs."""
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name in vars(options) if options is not None else ():
            if name == "subgraph" or name.endswith("ubgraphIndex"):
                yield options, name
