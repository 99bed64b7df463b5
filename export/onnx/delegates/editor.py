"""An ONNX graph with its constants, as the rewrites for accelerators read and change it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from keras_transformer.export.spec.lazy_array import AnyArray


class Editor:
    """A graph that is rewritten in place.

    Args:
        model: `ModelProto` without initializers.
        arrays: dict of name to array: its initializers, changed in place.
    """

    def __init__(self, model: Any, arrays: dict[str, AnyArray]) -> None:
        self.graph, self.arrays = model.graph, arrays
        self._numbers = itertools.count()

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """The names and values of constants that are in memory: those that are no weights of the model."""
        yield from [(name, array) for name, array in self.arrays.items() if isinstance(array, np.ndarray)]
        for node in self.graph.node:
            value = _value(node)
            if value is not None:
                yield node.output[0], numpy_helper.to_array(value.t)

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant, or None."""
        return dict(self.constants()).get(name)

    def set_value(self, name: str, array: np.ndarray) -> None:
        """Changes the value of a constant."""
        if name in self.arrays:
            self.arrays[name] = array
            return
        for node in self.graph.node:
            value = _value(node) if name in node.output else None
            if value is not None:
                value.t.CopyFrom(numpy_helper.from_array(array, value.t.name))

    def constant(self, label: str, array: Any) -> str:
        """The name of a new constant."""
        name = f"{label}/half_{next(self._numbers)}"
        self.arrays[name] = np.asarray(array)
        return name

    def replace(self, node: Any, nodes: list[Any]) -> None:
        """Puts nodes in the place of one."""
        every = list(self.graph.node)
        place = next(number for number, each in enumerate(every) if each is node or each == node)
        del self.graph.node[:]
        self.graph.node.extend([*every[:place], *nodes, *every[place + 1 :]])


def make(op: str, inputs: list[str], output: str, like: Any, **attributes: Any) -> Any:
    """A node that is named after the one that it replaces."""
    return helper.make_node(op, inputs, [output], f"{like.name or like.output[0]}/{op}", **attributes)


def _value(node: Any) -> Any:
    """The attribute that holds the value of a constant node, or None."""
    if node.op_type != "Constant":
        return None
    return next((each for each in node.attribute if each.name == "value"), None)
