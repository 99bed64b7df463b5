"""One operation of a traced function, where some of its inputs depend on the index of each row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.per_row.batch_axes import MIXED
from keras_transformer.export.graph.per_row.values import PerRow, Value, aligned, joined
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation, and what it is given.

    Args:
        node: its `NodeDef`.
        values: its inputs.
        axes: dict of the name of a tensor of the traced function to its axis of rows; see `batch_axes`.
    """

    node: NodeDef
    values: Sequence[Value]
    axes: Mapping[str, int]

    @property
    def batch_axis(self) -> int | None:
        """int or None: the axis of rows of its first result, in the traced function.

        Raises:
            InvalidModelError: it has no plain one.
        """
        axis = self.axes.get(self.node.name)
        if axis == MIXED:
            raise self.refused("mixes the rows of the batch")
        return axis

    @property
    def rank(self) -> int:
        """int: of its first result, in the traced function."""
        return len(self.node.attr["_output_shapes"].list.shape[0].dim)

    def value(self, index: int) -> Tensor | PerRow:
        """An input as one tensor."""
        return joined(self.values[index])

    def plain(self, index: int) -> Tensor:
        """An input that must not depend on the index."""
        found = self.value(index)
        if isinstance(found, PerRow):
            raise self.refused(f"takes its operand {index} from it")
        return found

    def number(self, index: int) -> np.ndarray:
        """An input that must be a constant."""
        found = tf.get_static_value(self.plain(index))
        if found is None:
            raise self.refused(f"computes its operand {index}")
        return np.asarray(found)

    def row_axis_of(self, index: int) -> int | None:
        """The axis of rows of an input in the traced function."""
        axis = self.axes.get(self.node.input[index])
        return None if axis == MIXED else axis

    def operands(self) -> list[Tensor]:
        """All inputs, with as many axes as the result, so that they are computed with by broadcasting."""
        values = [joined(each) for each in self.values]
        axis, rank = self.batch_axis, self.rank
        return [aligned(each, rank, axis) if isinstance(each, PerRow) else each for each in values]

    def result(self, tensor: Tensor) -> Value:
        """A tensor made of `operands` as the result: one that depends on the index alone is `PerRow`."""
        return PerRow(tensor) if self.batch_axis is None else tensor

    def emitted(self, inputs: Sequence[Tensor], **changes: int) -> list[Tensor]:
        """The results of the operation on tensors, in the graph that is being traced.

        Args:
            inputs: list of tensors.
            **changes: attributes of it that are others than those of the node, as numbers.
        """
        attributes = {key: value for key, value in self.node.attr.items() if key not in ("_output_shapes", "_class")}
        for key, value in changes.items():
            attributes[key] = tf.compat.v1.AttrValue(i=value)
        graph = tf.compat.v1.get_default_graph()
        return list(graph.create_op(self.node.op, list(inputs), name=self.node.name, attrs=attributes).outputs)

    def refused(self, what: str) -> InvalidModelError:
        """The error of an operation that cannot have an index for each row."""
        return InvalidModelError(
            f"operation {self.node.op} of '{self.node.name}' reads the position of the tokens, and {what}, so that the rows"
            " of a batch cannot stand at different positions"
        )
