"""The entry of the table of operations: what becomes of one operation of TensorFlow in each format, and its facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.export.graph.part import Node

# Those of an operation by name, as a graph has them.
Attributes: TypeAlias = Mapping[str, Any]
# The last two are converted from the traced graph; a SavedModel contains it nearly as it is.
SAVED_MODEL, TFLITE, ONNX = "saved_model", "tflite", "onnx"
NAN = "NaN"


def _always(node: Node) -> bool:
    return True


def _inputs(node: Node) -> Sequence[str]:
    return node.inputs


@dataclasses.dataclass(frozen=True)
class Decomposed:
    """An operation is replaced by a function of operations that the format has.

    The function is traced for the shapes and types of each node, and its operations take the place of the node. Operations
    of the table in it are replaced as well.

    Args:
        function: takes the operands as tensors and the attributes by keyword; returns the result, or a list of the results.
            Operands that are small constants are constants in the traced graph: `tf.get_static_value` tells them.
        attributes: names of the attributes of the operation that the function takes.
        when: whether it applies to a node; to all by default.
        operands: the tensors that a node's function takes: its inputs by default. They may be those of another node, where
            several nodes together are replaced.
    """

    function: Callable[..., Any]
    attributes: tuple[str, ...] = ()
    when: Callable[[Node], bool] = _always
    operands: Callable[[Node], Sequence[str]] = _inputs


@dataclasses.dataclass(frozen=True)
class Native:
    """An operation becomes operators of the format that no operation of TensorFlow is converted to.

    Args:
        build: makes them; what it takes is a matter of the format. ONNX: `(graph, node, name, arguments)`, as handlers of
            tf2onnx do.
    """

    build: Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Refused:
    """The format has no counterpart of an operation, and there is no function for it.

    Args:
        reason: why.
        remedy: what a user can do instead; "" for what `Remedy.OPERATION` says.
        when: to which nodes that applies; to all by default.
    """

    reason: str
    remedy: str = ""
    when: Callable[[Node], bool] = _always


@dataclasses.dataclass(frozen=True)
class Region:
    """Operands of which a runtime computes another result than TensorFlow.

    Args:
        name: what they are: `NAN`.
        when: in which nodes; in all by default.
    """

    name: str
    when: Callable[[Node], bool] = _always


# What is not said is kept: the converter of the format has the operation.
Lowering = Decomposed | Native | Refused


def _listed(found: Lowering | Sequence[Lowering]) -> tuple[Lowering, ...]:
    return (found,) if isinstance(found, Lowering) else tuple(found)


def in_both(lowering: Lowering | Sequence[Lowering]) -> dict[str, Lowering | Sequence[Lowering]]:
    """The same lowering in both formats."""
    return {TFLITE: lowering, ONNX: lowering}


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of TensorFlow.

    Args:
        name: of the operation in a graph, such as `"Log1p"`.
        lowerings: dict of format to what becomes of the operation there, or to several of which the first that applies
            counts. The converter keeps an operation of which nothing is said, or to which nothing applies.
        remedies: dict of format to what a user can do where its converter does not take the operation.
        rounds: bool. Whether a result in float32 is rounded; other operations move, compare or select values.
        rounds_operands: bool. Whether its results are exact for operands that are rounded, by as much as a sum of its length
            is: those of a factorization, which is backward stable, and of a sum that cancels. Operands of an operation that
            also rounds its result stay as they are where they are whole numbers.
        rounds_matrices: bool. Whether its operands are matrices, which are rounded as far as their largest numbers are.
        rounds_coordinates: bool. Whether it reads images at coordinates, which are rounded as a sum of its length is: its
            results move as far as pixels differ from those beside them, and by one unit, unless it also `rounds`.
        is_absolute: bool. Whether results near 0 are rounded as far as those near 1 are.
        sum_length: how many numbers are added for each element of the result, from the attributes of the operation, its
            operands and its result; None where there is no sum.
        reads_weight: position of the operand that may be a weight with which the converter of TFLite has nothing to compute.
        moves_weight: bool. Whether the operation reorders its first operand only, so that a weight stays one.
        differs: dict of format to the `Region`s that a report names where a model reaches them;
            `benchmarks/operator_conformance.py` measures them.
    """

    name: str
    lowerings: Mapping[str, Lowering | Sequence[Lowering]] = dataclasses.field(
        default_factory=dict[str, Lowering | Sequence[Lowering]]
    )
    remedies: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    rounds: bool = False
    rounds_operands: bool = False
    rounds_matrices: bool = False
    rounds_coordinates: bool = False
    is_absolute: bool = False
    sum_length: Callable[[Attributes, Sequence[Tensor], Tensor], float] | None = None
    reads_weight: int | None = None
    moves_weight: bool = False
    differs: Mapping[str, Sequence[Region]] = dataclasses.field(default_factory=dict[str, Sequence[Region]])

    def preceded_by(self, lowerings: Mapping[str, Lowering | Sequence[Lowering]]) -> Operation:
        """The same operation with further lowerings by format, which come before its own."""
        found = {format: (*_listed(each), *self.lowerings_in(format)) for format, each in lowerings.items()}
        return dataclasses.replace(self, lowerings={**self.lowerings, **found})

    def lowerings_in(self, format: str) -> tuple[Lowering, ...]:
        """What becomes of it in a format, in the order of precedence; nothing where the converter keeps it."""
        return _listed(self.lowerings.get(format, ()))
