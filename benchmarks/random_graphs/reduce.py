"""The smallest graph, and the simplest inputs, on which a file is wrong: delta debugging over the nodes of a graph."""

import dataclasses
import time

import numpy as np

from .graph import Graph, Input, Node, Program
from .judge import outcomes
from .regions import ORDINARY

# Seconds of a reduction on inputs that data of users have, and on others.
_SECONDS, _FEWER_SECONDS = 30.0, 10.0


class Reduction:
    """Makes a graph smaller as long as its outcome stays what it is.

    Args:
        graph: `Graph`.
        seed: int, of the weights.
        format: name of the format.
        outcome: the `Outcome` of the graph in that format.
        judge: of a graph and the arrays of its inputs: returns an `Outcome`; by default the export.
    """

    def __init__(self, graph, seed, format, outcome, judge=None):
        self.graph, self.outcome = graph, outcome
        self._seed, self._format, self._judge = seed, format, judge or self._exported
        self._until = time.monotonic() + (_SECONDS if outcome.region in ("", *ORDINARY) else _FEWER_SECONDS)
        if outcome.output:
            self._take(Graph(graph.inputs, graph.nodes, (outcome.output,)).needed())
        self._single()
        while self._step():
            pass
        self._shrink()

    def _exported(self, graph, arrays):
        given = [(self.outcome.region, arrays)] if arrays is not None else None
        return outcomes(graph, self._seed, [self._format], given)[self._format]

    def _take(self, graph, arrays=None):
        """Takes a smaller graph, if it builds and fails as the other does."""
        if time.monotonic() > self._until or not graph.nodes:
            return False
        arrays = self.outcome.arrays if arrays is None else arrays
        given = None if arrays is None else {each.name: arrays[each.name] for each in graph.inputs}
        try:
            found = self._judge(graph, given)
        except Exception:  # It is no graph that Keras takes.
            return False
        if found.key != self.outcome.key:
            return False
        kept = given if found.arrays is None else found.arrays
        self.graph = graph
        self.outcome = dataclasses.replace(found, arrays=kept, region=found.region or self.outcome.region)
        return True

    def _values(self):
        """All tensors of the graph on the inputs of the outcome, and their symbols."""
        program = Program(self.graph, self._seed)
        arrays = self.outcome.arrays or {
            each.name: np.zeros([size or 2 for size in each.shape], each.dtype) for each in self.graph.inputs
        }
        return program.tensors(arrays)

    def _cut(self, names, tensors):
        """The graph in which some nodes are inputs, with their values."""
        made = [
            Input(name, (None, *tensors[name].shape[1:]) if len(tensors[name].shape) else (), tensors[name].dtype.name)
            for name in names
        ]
        inputs = (*self.graph.inputs, *made)
        nodes = tuple(node for node in self.graph.nodes if node.name not in names)
        values = {name: np.asarray(tensors[name]) for name in names}
        return Graph(inputs, nodes, self.graph.outputs).needed(), {**(self.outcome.arrays or {}), **values}

    def _single(self):
        """Tries each node alone, of the tensors that it reads."""
        if len(self.graph.nodes) < 2:
            return
        try:
            tensors = self._values()
        except Exception:  # Keras does not compute them of zeros.
            return
        whole = self.graph
        known = {each.name for each in whole.inputs}
        for node in whole.nodes:
            self.graph = Graph(whole.inputs, whole.nodes, (node.name,)).needed()
            sources = [name for name in dict.fromkeys(node.sources) if name not in known]
            graph, arrays = self._cut(sources, tensors)
            if self._take(graph, arrays if self.outcome.arrays is not None else None):
                return
        self.graph = whole

    def _step(self):
        """Takes one smaller graph; returns whether there is one."""
        graph = self.graph
        if len(graph.outputs) > 1:
            for name in graph.outputs:
                if self._take(Graph(graph.inputs, graph.nodes, (name,)).needed()):
                    return True
        try:
            tensors = self._values()
        except Exception:
            return False
        for node in reversed(graph.nodes):
            if node.name not in graph.outputs:
                cut, arrays = self._cut([node.name], tensors)
                if self._take(cut, arrays if self.outcome.arrays is not None else None):
                    return True
            for source in node.sources:
                if self._take(_without(graph, node, source)):
                    return True
        return False

    def _shrink(self):
        """Simplifies the inputs: fewer rows, and as many zeros and ones as may be."""
        arrays = self.outcome.arrays
        if arrays is None:
            return
        rows = {array.shape[0] for array in arrays.values() if array.ndim}
        if len(rows) == 1 and all(each.shape and each.shape[0] is None for each in self.graph.inputs):
            for row in range(min(rows)):
                if self._take(self.graph, {name: array[row : row + 1] for name, array in arrays.items()}):
                    break
        for name in list(arrays):
            for value in (0, 1):
                array = self.outcome.arrays[name]
                self._take(self.graph, {**self.outcome.arrays, name: np.full_like(array, value)})
        for name in list(arrays):
            self._halves(name, np.arange(self.outcome.arrays[name].size))

    def _halves(self, name, places):
        """Sets elements to zero, half of them at a time."""
        array = self.outcome.arrays[name].copy()
        if not places.size or not np.any(array.flat[places]):
            return
        array.flat[places] = 0
        if not self._take(self.graph, {**self.outcome.arrays, name: array}) and places.size > 1:
            middle = places.size // 2
            self._halves(name, places[:middle])
            self._halves(name, places[middle:])


def _without(graph, node, source):
    """The graph in which a tensor takes the place of a node that reads it."""
    nodes = [
        Node(each.name, each.text, tuple(source if name == node.name else name for name in each.sources))
        for each in graph.nodes
        if each.name != node.name
    ]
    outputs = tuple(dict.fromkeys(source if name == node.name else name for name in graph.outputs))
    known = {each.name for each in nodes}
    return Graph(graph.inputs, tuple(nodes), tuple(name for name in outputs if name in known)).needed()


def reduced(graph, seed, format, outcome, judge=None):
    """The smallest graph found, and its `Outcome`."""
    found = Reduction(graph, seed, format, outcome, judge)
    return found.graph, found.outcome
