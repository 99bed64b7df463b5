"""The producer and the consumers of the tensors of a graph."""

from __future__ import annotations

import collections
from typing import Any

from keras_transformer.export.tflite.graph import Graph


class Uses:
    """The producer and the consumers of each tensor of a graph, by index.

    Args:
        graph: `Graph`.
    """

    def __init__(self, graph: Graph) -> None:
        self.makers: dict[int, Any] = {}
        self.readers: dict[int, list[Any]] = collections.defaultdict(list)
        for operator in graph.subgraph.operators:
            for index in indices(operator.outputs):
                self.makers[index] = operator
            for index in indices(operator.inputs):
                self.readers[index].append(operator)
        self.ends = set(indices(graph.subgraph.outputs))

    def only_reader(self, index: int) -> Any:
        """Returns the only consumer of a tensor, or None; an output of the graph has further consumers."""
        readers = self.readers[index]
        return readers[0] if len(readers) == 1 and index not in self.ends else None


def indices(tensors: Any) -> tuple[int, ...]:
    """Indices of tensors, of which there may be none, as integers."""
    return () if tensors is None else tuple(map(int, tensors))


def other(operator: Any, index: int) -> int:
    """The other input of a binary operator."""
    first, second = indices(operator.inputs)
    return second if first == index else first
