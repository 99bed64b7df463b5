"""Sines and cosines of computed angles by products and sums, with all digits of float32.

Shaders of GPUs compute sines with few correct digits; see `sine_tables`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor

# Pi in three parts, the first two of few bits, so that their products with small integers are exact (Cody and Waite).
_PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)
# sin(r) / r as a polynomial of r * r: the terms of its series, whose rest is below 6e-8 between -pi/2 and pi/2.
_SERIES = (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)


def with_sine_polynomials(editor: Editor) -> None:
    """Replaces the sines and cosines of a graph by polynomials of the rest of the angle by pi, with a sign.

    Args:
        editor: `Editor` of a graph whose sines are of float32.
    """
    editor.replace({node.output[0]: _polynomial(editor, node) for node in editor.nodes("Sin", "Cos")})


def _polynomial(editor: Editor, node: Any) -> list[Any]:
    make, made = editor.making(node)
    numbers: dict[float, str] = {}

    def number(value: float) -> str:
        if value not in numbers:
            numbers[value] = make.constant(np.array(value, "float32"), f"number_{len(numbers)}")
        return numbers[value]

    # sin(x) = (-1)^k sin(x - k pi), and cos(x) = (-1)^(k + 1) sin(x - (k + 1/2) pi).
    is_sine, angle = node.op_type == "Sin", node.input[0]
    turns = make("Mul", angle, number(1 / np.pi))
    count = make("Floor", make("Add", turns, number(0.5)) if is_sine else turns)
    middle = count if is_sine else make("Add", count, number(0.5))
    rest = angle
    for part in _PI:
        rest = make("Sub", rest, make("Mul", middle, number(part)))
    halves = make("Floor", make("Mul", count, number(0.5)))
    odd = make("Sub", count, make("Mul", halves, number(2.0)))
    first, slope = (1.0, -2.0) if is_sine else (-1.0, 2.0)
    sign = make("Add", make("Mul", odd, number(slope)), number(first))
    square = make("Mul", rest, rest)
    total = make("Mul", square, number(_SERIES[-1]))
    for term in _SERIES[-2::-1]:
        total = make("Mul", make("Add", total, number(term)), square)
    sine = make("Mul", make("Add", total, number(1.0)), rest)
    make.into(node.output[0], "Mul", sine, sign)
    return made
