"""Which operators of a program compute in 16 bits: all but those that compute with integers as numbers.

In 16 bits integers are exact up to 2048. Positions, counts and what is computed of them alone, such as angles, stay in 32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.export.coreml.builder import kind_of

if TYPE_CHECKING:
    from keras_transformer.export.coreml.builder import Operation, Var


class ComputesInHalf:
    """Called with an operator of coremltools before it is changed to 16 bits; returns whether it may be.

    Operators are given in the order of the program.
    """

    def __init__(self) -> None:
        # With the variable, since an `id` may be given again.
        self._known: dict[int, tuple[Var, bool]] = {}

    def __call__(self, operator: Operation) -> bool:
        return not self._is_of_integers(operator)

    def _is_of_integers(self, operator: Operation) -> bool:
        """Whether all float inputs that are no constants were integers."""
        if operator.op_type == "cast" and kind_of(operator.x) == "int32":
            return True
        # `kind_of` says "fp32" of numbers of 16 bits too.
        given = [each for each in _variables(operator) if each.val is None and kind_of(each) == "fp32"]
        return bool(given) and all(map(self._was_integer, given))

    def _was_integer(self, variable: Var) -> bool:
        if id(variable) not in self._known:
            found = variable.op is not None and self._is_of_integers(variable.op)
            self._known[id(variable)] = variable, found
        return self._known[id(variable)][1]


def _variables(operator: Operation) -> list[Var]:
    given = [each if isinstance(each, (list, tuple)) else [each] for each in operator.inputs.values()]
    return [each for several in given for each in several]
