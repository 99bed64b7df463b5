"""Norms without weights as `RMSNormalization`.

`x / √(mean(x²) + ε)` squares a tensor: in fp16 the squares of numbers below 8e-3 lose digits, and those of numbers above
256 are infinite. Accelerators compute the operator with more bits inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from keras_transformer.export.onnx.delegates.editor import Editor


def with_operators(editor: Editor) -> None:
    """`x · (1 / √(mean(x²) + ε))`, or `x / √(mean(x²) + ε)`, over the last axis, as one operator."""
    found = {}
    for node in editor.nodes("Div", "Mul"):
        for x, root in _factors(editor, node):
            epsilon = _epsilon(editor, x, root)
            width = (editor.shape(x) or (None,))[-1]
            if epsilon is not None and width is not None:
                make, made = editor.making(node)
                ones = make.constant(np.ones(width, "float32"), "ones")
                make.into(node.output[0], "RMSNormalization", x, ones, axis=-1, epsilon=epsilon)
                found[node.output[0]] = made
                break
    editor.replace(found)


def _factors(editor: Editor, node: Any) -> list[tuple[str, str]]:
    """The pairs of a tensor and the square root by which a node divides it."""
    if node.op_type == "Div":
        return [(node.input[0], node.input[1])]
    pairs = [(node.input[0], node.input[1]), (node.input[1], node.input[0])]
    inverses = [(x, editor.maker(other, "Reciprocal")) for x, other in pairs]
    return [(x, inverse.input[0]) for x, inverse in inverses if inverse is not None]


def _epsilon(editor: Editor, x: str, root: str) -> float | None:
    """ε of a square root of the mean square of a tensor, or None if it is of something else."""
    square_root = editor.maker(root, "Sqrt")
    total = square_root and editor.maker(square_root.input[0], "Add")
    if not total:
        return None
    for mean, epsilon in (total.input, reversed(total.input)):
        value, reduced = editor.value(epsilon), editor.maker(mean, "ReduceMean")
        if value is None or value.size != 1 or reduced is None or not _is_of_last_axis(editor, reduced, x):
            continue
        if _is_square(editor, reduced.input[0], x):
            return float(value.reshape(()))
    return None


def _is_of_last_axis(editor: Editor, node: Any, x: str) -> bool:
    options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    axes = editor.value(node.input[1]) if len(node.input) > 1 else None
    shape = editor.shape(x)
    if axes is None or shape is None or options.get("keepdims", 1) != 1:
        return False
    return axes.reshape(-1).tolist() in ([-1], [len(shape) - 1])


def _is_square(editor: Editor, name: str, x: str) -> bool:
    product, power = editor.makers.get(name), editor.maker(name, "Pow")
    if product is not None and product.op_type == "Mul":
        return list(product.input) == [x, x]
    if power is None or power.input[0] != x:
        return False
    exponent = editor.value(power.input[1])
    return exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == 2
