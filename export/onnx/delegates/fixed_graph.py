"""An ONNX graph of fixed shapes that is rewritten, node by node, with its constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper, numpy_helper

from keras_transformer.export.onnx.node_maker import NodeMaker
from keras_transformer.export.onnx.traversal import all_nodes

if TYPE_CHECKING:
    import onnx

    from keras_transformer.export.spec.lazy_array import AnyArray


class FixedGraph:
    """A graph of fixed shapes, with its constants.

    Args:
        model: `onnx.ModelProto`, changed in place.
        arrays: dict of name to array: constants that are not in the model. Changed in place.
        limits: dict of an input of one integer to the number that it is below, where that is known.

    Attributes:
        model: as given.
        makers: dict of the name of a value to the node that produces it.
        limits: as given.
        input_shapes: dict of input to its shape.
        outputs: names of the outputs.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        arrays: dict[str, AnyArray] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.model, self._arrays, self.limits = model, {} if arrays is None else arrays, dict(limits or {})
        self._own = {each.name: each for each in model.graph.initializer}
        self.makers: dict[str, onnx.NodeProto] = {}
        self._find_makers()
        self.outputs = {each.name for each in model.graph.output}
        given = [each for each in model.graph.input if each.name not in self._own and each.name not in self._arrays]
        self.input_shapes = {
            each.name: tuple(size.dim_value for size in each.type.tensor_type.shape.dim) for each in given
        }

    def value(self, name: str) -> AnyArray | None:
        """The value of a constant, or None."""
        if name in self._arrays:
            return self._arrays[name]
        if name in self._own:
            return numpy_helper.to_array(self._own[name])
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "Constant":
            return None
        found = helper.get_node_attr_value(maker, maker.attribute[0].name)
        return numpy_helper.to_array(found) if maker.attribute[0].name == "value" else np.asarray(found)

    def store(self, name: str, array: np.ndarray) -> str:
        """Adds a constant; returns its name."""
        self._arrays[name] = array
        return name

    def sources(self, name: str) -> tuple[list[onnx.NodeProto], set[str]]:
        """What computes a value: nodes in the order of the graph, and the inputs of the graph that they read."""
        found: set[str] = set()
        nodes, waiting, inputs = [], [name], set()
        while waiting:
            each = waiting.pop()
            maker = self.makers.get(each)
            if each in self.input_shapes:
                inputs.add(each)
            elif maker is not None and self.value(each) is None and maker.output[0] not in found:
                found.add(maker.output[0])
                waiting += filter(None, maker.input)
        nodes = [node for node in self.model.graph.node if node.output and node.output[0] in found]
        return nodes, inputs

    def replace(self, rule: Callable[[onnx.NodeProto, NodeMaker], bool]) -> int:
        """Puts other nodes in the place of each node for which a rule makes them; returns how many were replaced.

        Args:
            rule: called with a node and a `NodeMaker`; returns whether it made nodes that write the outputs of the node.
        """
        kept: list[onnx.NodeProto] = []
        count = 0
        for node in list(self.model.graph.node):
            made: list[onnx.NodeProto] = []
            is_replaced = rule(node, NodeMaker(made, node, self.store))
            kept += made if is_replaced else [node]
            count += is_replaced
        self._set_nodes(kept)
        return count

    def drop_unread(self) -> None:
        """Removes the nodes and constants that no output of the graph needs."""
        graph = self.model.graph
        read = set(self.outputs)
        kept = []
        for node in reversed(graph.node):
            if read.intersection(node.output):
                kept.append(node)
                read.update(node.input)
                for body in _bodies(node):
                    read.update(name for inner in all_nodes(body) for name in inner.input)
        self._set_nodes(kept[::-1])
        for name in [each for each in self._arrays if each not in read]:
            del self._arrays[name]
        kept_own = [each for each in graph.initializer if each.name in read]
        if len(kept_own) < len(graph.initializer):
            count = len(graph.initializer)
            graph.initializer.extend(kept_own)
            del graph.initializer[:count]
            self._own = {each.name: each for each in graph.initializer}

    def _set_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        graph, count = self.model.graph, len(self.model.graph.node)
        graph.node.extend(nodes)
        del graph.node[:count]
        self._find_makers()

    def _find_makers(self) -> None:
        self.makers = {name: node for node in self.model.graph.node for name in node.output}


def _bodies(node: onnx.NodeProto) -> list[Any]:
    return [each.g for each in node.attribute if each.HasField("g")]
