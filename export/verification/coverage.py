"""Coverage of branches: which sides of the comparisons, selections and steps of a graph some inputs take.

A fault of a side that no probe takes is not found: of what a clip cuts off, of the other value of a `where`, of a number
that a `floor` or a cast takes to another integer. What is computed of shapes alone is no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.data.export_spec import Coverage
from keras_transformer.export.verification.graph_execution import Operation
from keras_transformer.utils.types import Tensor

_COMPARISONS = ("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual")
_SELECTIONS = ("Select", "SelectV2")
_RECTIFIERS = ("Elu", "LeakyRelu", "Relu", "Relu6", "Selu")
_STEPS = ("ArgMax", "ArgMin", "Ceil", "Floor", "FloorDiv", "FloorMod", "Rint", "Round", "Sign")
# Results that depend on the shapes of their operands.
_OF_SHAPES = ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike")
# An attribute of tensors that depend on the inputs' values.
_MARK = "_depends_on_values"


class Branches:
    """The sides of the branches of a graph that are taken; its `observe` sees each operation of an execution."""

    def __init__(self) -> None:
        self._sides: dict[tuple[str, str], set[bool]] = {}
        self._kinds: dict[tuple[str, str], str] = {}

    @property
    def is_complete(self) -> bool:
        """bool: whether each branch takes both sides."""
        return all(len(each) == 2 for each in self._sides.values())

    def observe(self, operation: Operation, inputs: Sequence[Tensor], result: Tensor) -> None:
        """Notes the sides that an operation takes.

        Args:
            operation: `Operation`.
            inputs: its tensors; `mark` has marked those of the model.
            result: its first result.
        """
        if operation.kind in _OF_SHAPES or not any(getattr(each, _MARK, False) for each in inputs):
            return
        mark(result)
        key = operation.function, operation.name
        if len(self._sides.get(key, ())) == 2:
            return
        sides = _sides(operation, inputs, result)
        if sides is not None:
            self._kinds[key] = operation.kind
            self._sides.setdefault(key, set()).update(side for side, is_taken in sides.items() if bool(is_taken))

    def coverage(self, locate: Callable[[str, str], str]) -> Coverage:
        """What is reached.

        Args:
            locate: maps `(op type, node name)` to the name of a layer.
        """
        missing = [key for key, each in self._sides.items() if len(each) < 2]
        names = dict.fromkeys(f"{self._kinds[key]} of '{locate(self._kinds[key], key[1])}'" for key in missing)
        return Coverage(len(self._sides), len(self._sides) - len(missing), tuple(names))


def mark(tensor: Tensor) -> None:
    """Marks a tensor as one that depends on the values of inputs."""
    setattr(tensor, _MARK, True)


def _sides(operation: Operation, inputs: Sequence[Tensor], result: Tensor) -> dict[bool, Tensor] | None:
    """Whether an operation takes each of its two sides; None where it is no branch."""
    kind = operation.kind
    if kind in _COMPARISONS:
        return _both(result)
    if kind in _SELECTIONS:
        return _both(inputs[0]) if getattr(inputs[0], _MARK, False) else None
    if kind in ("Maximum", "Minimum"):
        return {True: tf.reduce_any(inputs[0] > inputs[1]), False: tf.reduce_any(inputs[0] < inputs[1])}
    if kind in _RECTIFIERS:
        return _both(inputs[0] > 0)
    if kind in _STEPS or (kind == "Cast" and inputs[0].dtype.is_floating and result.dtype.is_integer):
        first = tf.reshape(result, [-1])[:1]
        # Of one value, the two sides are that and another one.
        return {True: tf.size(result) > 0, False: tf.reduce_any(result != first)}
    return None


def _both(flags: Tensor) -> dict[bool, Tensor]:
    return {True: tf.reduce_any(flags), False: tf.reduce_any(tf.logical_not(flags))}
