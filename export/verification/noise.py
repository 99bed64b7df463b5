"""Operations of noise on a tensor: it is multiplied by random numbers near 1, or moved by random numbers near 0."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_part

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

FLOAT, INT32, COMPLEX = (each.as_datatype_enum for each in (tf.float32, tf.int32, tf.complex64))
# Operations without a result.
_SILENT = ("AssignAddVariableOp",)
# The axes of images along which they are resized.
_AXES_OF_IMAGES = (1, 2)


class Kind(enum.Enum):
    """What the noise is a share of."""

    OF_VALUES = "of each number"
    OF_ONE = "of 1, however small a number is"
    OF_MATRICES = "of the largest number of each matrix"
    OF_NEIGHBORS = "of the difference of a pixel from the one before it, in each direction"


class Nodes:
    """Operations of one scope that are being made."""

    def __init__(self, scope: str, is_in_function: bool) -> None:
        self._scope, self._is_in_function = scope, is_in_function
        self.found: list[NodeDef] = []

    def add(self, name: str, op: str, inputs: Sequence[str], **types: int) -> str:
        """Adds an operation with at most one result; returns the name of that."""
        made = new_node(f"{self._scope}/{name}", op, inputs, **types)
        self.found.append(made)
        is_named = self._is_in_function and op not in _SILENT
        return f"{made.name}:{result_part(op, made.attr, 0)}" if is_named else made.name

    def constant(self, name: str, value: object) -> str:
        """Adds a constant; returns its name."""
        tensor = tf.make_tensor_proto(value)
        found = self.add(name, "Const", [], dtype=tensor.dtype)
        self.found[-1].attr["value"].tensor.CopyFrom(tensor)
        return found


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise on one tensor.

    Args:
        operation: the operation that it belongs to.
        name: of the tensor with noise.
        source: the tensor.
        dtype: its type, float32 or complex64.
        keeps_whole: bool. Whether whole numbers stay as they are.
        kind: its `Kind`.
        width: half width of its numbers; None for that of the operation.
    """

    operation: str
    name: str
    source: str
    dtype: int
    keeps_whole: bool
    kind: Kind = Kind.OF_VALUES
    width: float | None = None

    def result(self, is_in_function: bool) -> str:
        """What reads the tensor with noise."""
        return f"{self.name}:output:0" if is_in_function else self.name

    def nodes(self, width: str, seed: str, is_in_function: bool) -> list[NodeDef]:
        """Operations that add noise to the tensor.

        Args:
            width: tensor of the half width of the operation.
            seed: tensor of two integers.
            is_in_function: bool. Whether the operations belong to a function.
        """
        nodes = Nodes(f"{self.name}/noise", is_in_function)
        width = width if self.width is None else nodes.constant("width", np.float32(self.width))
        moves = self._of_neighbors if self.kind is Kind.OF_NEIGHBORS else self._of_values
        rounded = moves(nodes, width, seed)
        if not self.keeps_whole:
            return [*nodes.found, new_node(self.name, "Identity", [rounded], T=self.dtype)]
        whole = nodes.add("whole", "Rint", [self.source], T=FLOAT)
        is_whole = nodes.add("is_whole", "Equal", [whole, self.source], T=FLOAT)
        return [*nodes.found, new_node(self.name, "SelectV2", [is_whole, self.source, rounded], T=FLOAT)]

    def _of_values(self, nodes: Nodes, width: str, seed: str) -> str:
        """The tensor times `1 + d`, or with both parts from there; or plus `d`."""
        drawn = self._drawn(nodes, "real", width, seed)
        if self.kind is Kind.OF_MATRICES:
            drawn = nodes.add("share", "Mul", [drawn, self._largest(nodes)], T=FLOAT)
        if self.kind in (Kind.OF_ONE, Kind.OF_MATRICES):
            return nodes.add("rounded", "AddV2", [self.source, drawn], T=self.dtype)
        factor = nodes.add("factor", "AddV2", [drawn, nodes.constant("one", np.float32(1))], T=FLOAT)
        if self.dtype == COMPLEX:
            other = self._drawn(nodes, "imaginary", width, _next(nodes, seed, 1))
            factor = nodes.add("both", "Complex", [factor, other], T=FLOAT, Tout=COMPLEX)
        return nodes.add("rounded", "Mul", [self.source, factor], T=self.dtype)

    def _largest(self, nodes: Nodes) -> str:
        """The largest size of the numbers of each matrix."""
        axes = nodes.constant("axes", np.array([-2, -1], "int32"))
        found = nodes.add(
            "largest", "Max", [nodes.add("sizes", "Abs", [self.source], T=FLOAT), axes], T=FLOAT, Tidx=INT32
        )
        nodes.found[-1].attr["keep_dims"].b = True
        return found

    def _of_neighbors(self, nodes: Nodes, width: str, seed: str) -> str:
        """The tensor of images, moved as it moves with the coordinates at which it is read."""
        moved = self.source
        for axis in _AXES_OF_IMAGES:
            step, along = nodes.constant(f"step_{axis}", np.int32(1)), nodes.constant(f"axis_{axis}", np.int32(axis))
            types = {"T": self.dtype, "Tshift": INT32, "Taxis": INT32}
            before = nodes.add(f"before_{axis}", "Roll", [self.source, step, along], **types)
            difference = nodes.add(f"difference_{axis}", "Sub", [self.source, before], T=self.dtype)
            drawn = self._drawn(nodes, f"along_{axis}", width, _next(nodes, seed, axis))
            share = nodes.add(f"share_{axis}", "Mul", [drawn, difference], T=self.dtype)
            moved = nodes.add(f"moved_{axis}", "AddV2", [moved, share], T=self.dtype)
        return moved

    def _drawn(self, nodes: Nodes, name: str, width: str, seed: str) -> str:
        """Numbers from `[-width, width)`, as many as the tensor has."""
        shape = nodes.add(f"{name}_shape", "Shape", [self.source], T=self.dtype, out_type=INT32)
        drawn = nodes.add(name, "StatelessRandomUniform", [shape, seed], T=INT32, Tseed=INT32, dtype=FLOAT)
        half = nodes.constant(f"{name}_half", np.float32(0.5))
        centered = nodes.add(f"{name}_centered", "Sub", [drawn, half], T=FLOAT)
        twice = nodes.add(f"{name}_range", "AddV2", [width, width], T=FLOAT)
        return nodes.add(f"{name}_scaled", "Mul", [centered, twice], T=FLOAT)


def _next(nodes: Nodes, seed: str, step: int) -> str:
    """Another seed."""
    steps = nodes.constant(f"steps_{step}", np.array([0, step], "int32"))
    return nodes.add(f"seed_{step}", "AddV2", [seed, steps], T=INT32)


def new_node(name: str, op: str, inputs: Sequence[str], **types: int) -> NodeDef:
    """A `NodeDef`, with the data types of its attributes."""
    made = tf.compat.v1.NodeDef(name=name, op=op, input=inputs)
    for key, kind in types.items():
        made.attr[key].type = kind
    return made
