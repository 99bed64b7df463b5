"""Operators one by one: the integers that tflite-micro computes, beside those of the kernels of LiteRT.

LiteRT has two sets of kernels, reference and optimized ones, which round numbers between two steps differently. An operator
is equal where each of its numbers is that of one of the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.targets.microcontrollers.interpreter import open_interpreter
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, read, write

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.schema_py_generated import ModelT

_INTEGERS = ("INT8", "UINT8", "INT16", "INT32")
_RESOLVERS = ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")


class Compared(NamedTuple):
    """An operator whose integers were compared.

    Args:
        kind: name of the operator.
        steps: the largest difference of a number from the nearest of LiteRT's kernels, in steps of the output.
    """

    kind: str
    steps: int


def compare_operators(content: bytes, cases: Sequence[Sequence[np.ndarray]]) -> list[Compared]:
    """Runs each operator of integers alone, on the numbers that it has in the graph.

    Args:
        content: bytes of a .tflite file.
        cases: sequence of lists of the input arrays, in the order of the graph and of its types.

    Returns:
        A list of `Compared`, of the operators whose inputs and outputs are integers.
    """
    values = [_tensors(content, case) for case in cases]
    return list(_compared(content, values))


def _compared(content: bytes, values: Sequence[dict[int, np.ndarray]]) -> Iterator[Compared]:
    for number in range(len(read(content).subgraphs[0].operators)):
        model = read(content)
        graph = Graph(model, model.subgraphs[0])
        operator = graph.subgraph.operators[number]
        given = list(dict.fromkeys(each for each in indices(operator.inputs) if each >= 0))
        given = [each for each in given if not graph.is_constant(each) and not graph.tensors[each].isVariable]
        results = indices(operator.outputs)
        is_known = all(each in values[0] for each in given)
        if {graph.type(each) for each in (*given, *results)} <= set(_INTEGERS) and is_known and given and results:
            alone = _alone(model, number, given)
            yield Compared(graph.kind(operator), _steps(alone, [[each[one] for one in given] for each in values]))


def _alone(model: ModelT, number: int, given: Sequence[int]) -> bytes:
    """A file of one operator of a graph."""
    graph = model.subgraphs[0]
    operator = graph.operators[number]
    graph.operators, graph.outputs = [operator], operator.outputs
    graph.inputs = np.array(given, "int32")
    model.signatureDefs = []
    return write(model)


def _steps(content: bytes, cases: Sequence[Sequence[np.ndarray]]) -> int:
    """The largest difference of a number of a file of one operator from the nearest of LiteRT's kernels."""
    micro, kernels, largest = open_interpreter(content), [_opened(content, name) for name in _RESOLVERS], 0
    for case in cases:
        for place, array in enumerate(case):
            micro.set_input(array, place)
        micro.invoke()
        for place, expected in enumerate(zip(*(_outputs(each, case) for each in kernels), strict=True)):
            found = micro.get_output(place).astype("int64")
            gaps = np.min([np.abs(found - each) for each in expected], axis=0)
            largest = max(largest, int(gaps.max(initial=0)))
    return largest


def _outputs(interpreter: Interpreter, case: Sequence[np.ndarray]) -> list[np.ndarray]:
    for details, array in zip(interpreter.get_input_details(), case, strict=True):
        interpreter.set_tensor(details["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]).astype("int64") for each in interpreter.get_output_details()]


def _tensors(content: bytes, case: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """All tensors of the graph, as LiteRT's reference kernels compute them."""
    interpreter = _opened(content, _RESOLVERS[0], keeps_all=True)
    _outputs(interpreter, case)
    graph = read(content).subgraphs[0]
    found = dict(zip(indices(graph.inputs), case, strict=True))
    for index in (index for operator in graph.operators for index in indices(operator.outputs)):
        with contextlib.suppress(ValueError):  # It keeps no value of some results of loops.
            found[index] = interpreter.get_tensor(index)
    return found


def _opened(content: bytes, resolver: str, keeps_all: bool = False) -> Interpreter:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=getattr(OpResolverType, resolver),
        experimental_preserve_all_tensors=keeps_all,
    )
    interpreter.allocate_tensors()
    return interpreter
