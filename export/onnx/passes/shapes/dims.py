"""Symbolic shape inference of ONNX graphs: sizes are products of numbers and names, such as `2*batch*length`.

ONNX's own shape inference stops at computed sizes, such as the target of a `Reshape`. Two sizes that are equal as text are
equal in every run of the graph; the converse is not true.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from keras_transformer.export.onnx.options import CONTRIB
from keras_transformer.export.onnx.passes.shapes.integers import Sizes, sizes_of
from keras_transformer.export.onnx.passes.shapes.operators import ELEMENTWISE, SEVERAL, Operators

if TYPE_CHECKING:
    from keras_transformer.export.onnx.rewrites.rule import OperatorMaker


def _without_names(sizes: Sizes | None) -> Sizes | None:
    """Sizes without names, which may have another meaning elsewhere."""
    return None if sizes is None else [size if isinstance(size, int) else None for size in sizes]


class Dims(Operators):
    """Symbolic shapes of all values of a graph, and the graph inputs that the named sizes can be read from."""

    def infer(self, graph: ir.Graph) -> None:
        """Infers the shapes of a graph, and forgets those of another.

        Args:
            graph: `onnx_ir.Graph`. The shapes of its values are set.
        """
        self._fresh = (f"d{number}" for number in itertools.count())
        self._results, self._numbers, self._at_most = {}, {}, {}
        self.sources = {}
        for value in graph.inputs:
            for axis, size in enumerate(sizes_of(value) or ()):
                if isinstance(size, str):
                    self.sources.setdefault(size, (value, axis))
            self._set_shape(value, sizes_of(value))
        self._walk(graph)

    def _walk(self, graph):
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    self._enter(node, attribute.as_graph())
            self._infer(node)

    def _enter(self, node, body):
        """Infers the shapes in a body. A state of a loop keeps a size if no iteration changes it."""
        carried = [sizes_of(value) for value in node.inputs[2:]] if node.op_type == "Loop" else []
        carried = [sizes and list(sizes) for sizes in carried]
        while True:
            for value, sizes in zip(body.inputs[len(body.inputs) - len(carried) :], carried, strict=True):
                value.shape = None
                self._set_shape(value, sizes)
            for value in body.inputs[: len(body.inputs) - len(carried)]:
                self._set_shape(value, _without_names(sizes_of(value)))
            self._walk(body)
            if not self._remove_changed(carried, body.outputs[1 : 1 + len(carried)]):
                break
        for value, sizes in zip(node.outputs, carried, strict=False):
            value.shape = None
            self._set_shape(value, sizes)

    def _remove_changed(self, carried, outputs):
        """Removes the carried sizes that an iteration changes; returns whether there were any."""
        changed = False
        for index, value in enumerate(outputs):
            sizes, found = carried[index], sizes_of(value)
            if sizes is None:
                continue
            if found is None or len(found) != len(sizes):
                carried[index], changed = None, True
                continue
            for axis, (size, other) in enumerate(zip(sizes, found, strict=True)):
                if size is not None and size != other:
                    sizes[axis], changed = None, True
        return changed

    def _set_shape(self, value: ir.Value, sizes: Sizes | None) -> None:
        if sizes is not None:
            value.shape = ir.Shape([next(self._fresh) if size is None else size for size in sizes])

    def _infer(self, node):
        is_known = node.domain in ("", CONTRIB)
        rule = getattr(self, f"_{node.op_type.lower()}", None) if is_known else None
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
            self._set_shape(output, found)

    def shape_tensor(self, op: OperatorMaker, sizes: Sequence[Any]) -> ir.Value | None:
        """Returns an integer vector with these sizes, from constants and shapes of graph inputs, or None."""
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


def matrices(model: ir.Model) -> frozenset[str]:
    """Returns the names of the values of rank 2 in a graph, but not of those in its bodies.

    Args:
        model: `onnx_ir.Model`, which is not changed.
    """
    copy = model.clone()
    for node in copy.graph:
        if node.domain == CONTRIB and node.outputs[0].type is None:  # The inference of ONNX does not know them.
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    common.ShapeInferencePass()(copy)
    Dims().infer(copy.graph)
    values = (value for node in copy.graph for value in node.outputs)
    return frozenset(str(value.name) for value in values if len(sizes_of(value) or ()) == 2)
