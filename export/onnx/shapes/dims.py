"""Sizes of axes as products of numbers and names, `2*batch*length`, followed through a whole ONNX graph.

ONNX's own inference gives up where a size is computed, as the target of a `Reshape` is; then no rewrite can prove anything.
Two sizes that are equal as text are equal whenever the graph runs; the converse is not claimed.
"""

import itertools

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.shapes.integers import sizes_of
from keras_transformer.export.onnx.shapes.operators import ELEMENTWISE, SEVERAL, Operators


def _without_names(sizes):
    """Names given elsewhere may mean something else."""
    return sizes and [size if isinstance(size, int) else None for size in sizes]


class Dims(Operators):
    """Gives every value of a graph a shape of such sizes, and remembers where the named ones can be read.

    Args:
        graph: `onnx_ir.Graph`; shapes are written onto its values.
    """

    def __init__(self, graph):
        self._fresh = (f"d{number}" for number in itertools.count())
        self._results = {}  # (operator, size, size) -> the name of what comes out
        self._numbers = {}  # value -> the sizes that an integer vector (list) or scalar holds
        self._at_most = {}  # name of a size -> a size that it does not exceed
        self.sources = {}  # name of a size -> (graph input, axis)
        for value in graph.inputs:
            for axis, size in enumerate(sizes_of(value) or ()):
                if isinstance(size, str):
                    self.sources.setdefault(size, (value, axis))
            self._settle(value, sizes_of(value))
        self._walk(graph)

    def _walk(self, graph):
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    self._enter(node, attribute.as_graph())
            self._infer(node)

    def _enter(self, node, body):
        """Follows a body. What a loop carries keeps a size over all turns where each turn gives it back as it came."""
        carried = [sizes_of(value) for value in node.inputs[2:]] if node.op_type == "Loop" else []
        carried = [sizes and list(sizes) for sizes in carried]
        while True:
            for value, sizes in zip(body.inputs[len(body.inputs) - len(carried) :], carried, strict=True):
                value.shape = None
                self._settle(value, sizes)
            for value in body.inputs[: len(body.inputs) - len(carried)]:
                self._settle(value, _without_names(sizes_of(value)))
            self._walk(body)
            if not self._drop_changed(carried, body.outputs[1 : 1 + len(carried)]):
                break
        for value, sizes in zip(node.outputs, carried, strict=False):
            value.shape = None
            self._settle(value, sizes)

    def _drop_changed(self, carried, outputs):
        """Forgets those carried sizes that a turn changes; whether there were any."""
        changed = False
        for place, value in enumerate(outputs):
            sizes, found = carried[place], sizes_of(value)
            if sizes is None:
                continue
            if found is None or len(found) != len(sizes):
                carried[place], changed = None, True
                continue
            for axis, (size, other) in enumerate(zip(sizes, found, strict=True)):
                if size is not None and size != other:
                    sizes[axis], changed = None, True
        return changed

    def _settle(self, value, sizes):
        if sizes is not None:
            value.shape = ir.Shape([next(self._fresh) if size is None else size for size in sizes])

    def _infer(self, node):
        rule = getattr(self, f"_{node.op_type.lower()}", None) if node.domain == "" else None
        if rule is None and node.domain == "" and node.op_type in ELEMENTWISE:
            rule = self._elementwise
        sizes = rule(node) if rule else None
        for number, output in enumerate(node.outputs):
            if node.op_type == "Loop" or (number and node.op_type in SEVERAL and sizes is not None):
                continue
            known = _without_names(sizes_of(output))
            found = sizes if number == 0 and sizes is not None else known
            if found is not None and known is not None and len(found) == len(known):
                found = [exact if isinstance(exact, int) else size for size, exact in zip(found, known, strict=True)]
            self._settle(output, found)

    def shape_tensor(self, op, sizes):
        """An integer vector with these sizes, made of constants and of shapes of graph inputs; None where it cannot be."""
        if all(isinstance(size, int) for size in sizes):
            return op.Constant(value=ir.tensor(np.array(sizes, np.int64)))
        if any(isinstance(size, str) and size not in self.sources for size in sizes):
            return None
        parts = []
        for whole, group in itertools.groupby(sizes, lambda size: isinstance(size, int)):
            if whole:
                parts.append(op.Constant(value=ir.tensor(np.array(list(group), np.int64))))
                continue
            for size in group:
                source, axis = self.sources[size]
                parts.append(op.Shape(source, start=axis, end=axis + 1))
        return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
