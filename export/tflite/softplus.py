"""Softplus that keeps its digits where it is small, which TFLite's converter writes as `log(1 + exp(x))`."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.constants import FLOAT, add_constant
from keras_transformer.export.tflite.function_outputs import rename_output

# artanh(z) / z as a polynomial of z² for |z| <= 1/3, 2e-9 of it away: the argument for softplus is at most that.
_ARTANH = np.polynomial.Chebyshev.interpolate(
    lambda square: np.arctanh(np.sqrt(square)) / np.sqrt(square), deg=4, domain=[0, 1 / 9]
).convert(kind=np.polynomial.Polynomial)


def with_exact_softplus(function: Any) -> int:
    """Rewrites each `Softplus` of float32 as `max(x, 0) + 2 artanh(z)`; returns how many.

    Here `z = e / (2 + e)` and `e = exp(-|x|)`, so that the second term is log(1 + e) without a sum that rounds e away.
    State-space models have steps of softplus(-7), in which the converter's form is wrong by 6e-5. XNNPACK's logarithm loses
    as much near 1, so that it cannot be used with a correction either.

    Args:
        function: `FunctionDef` of a SavedModel, changed in place.
    """
    found = [node for node in function.node_def if node.op == "Softplus" and node.attr["T"].type == FLOAT]
    for node in found:
        _Softplus(function, node).replace()
    return len(found)


class _Softplus:
    """The nodes that take the place of one `Softplus`."""

    def __init__(self, function: Any, node: Any) -> None:
        self._function, self._node, self._name = function, node, node.name

    def replace(self) -> None:
        x, two = self._node.input[0], self._number("two", 2.0)
        e = self._of("Exp", "e", self._of("Neg", "minus_size", self._of("Abs", "size", x)))
        z = self._of("RealDiv", "ratio", e, self._of("AddV2", "divisor", e, two))
        factor = self._polynomial(self._of("Mul", "square", z, z), 2 * np.asarray(_ARTANH.coef, "float64"))
        self._node.op = "AddV2"
        self._node.input[:] = [
            self._of("Maximum", "positive", x, self._number("zero", 0.0)),
            self._of("Mul", "logarithm", z, factor),
        ]
        rename_output(self._function, f"{self._name}:activations:0", f"{self._name}:z:0")

    def _polynomial(self, x: str, coefficients: np.ndarray) -> str:
        """The polynomial with these coefficients, that of the lowest power first, by Horner's rule."""
        *others, total = (self._number(f"coefficient_{power}", each) for power, each in enumerate(coefficients))
        for power, coefficient in reversed(list(enumerate(others))):
            total = self._of("AddV2", f"sum_{power}", self._of("Mul", f"product_{power}", total, x), coefficient)
        return total

    def _number(self, label: str, value: float) -> str:
        return add_constant(self._function, f"{self._name}/{label}", np.array(value), FLOAT)

    def _of(self, op: str, label: str, *operands: str) -> str:
        node = self._function.node_def.add(name=f"{self._name}/{label}", op=op, input=operands)
        node.attr["T"].type = FLOAT
        return f"{node.name}:{'y' if len(operands) == 1 else 'z'}:0"
