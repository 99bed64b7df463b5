"""Numbers and functions in 16 bits, as Hexagon computes them (onnxruntime-qnn 2.7).

A model masks by adding a number like -1e30, and asks by comparing with -5e29 whether a value is there. In fp16, whose
largest number is 65504, both become infinities, or that number: differences are no numbers, and comparisons wrong. They
become -3e4 and -1.5e4 here. The exponential of a number below -104 is zero in float32 as well, and sums with values of the
model stay in the range.

`Exp` in fp16 is wrong below -88: of -90 it is -131008, of -300 it is 131008. Numbers that small are those of weights that a
mask takes out.

The compiler joins `x · sigmoid(x)` into an operator that is twice as far off as a form with `Tanh`: of a small RetNet
outputs were 1.1 % of the scale away, and are 0.5 % now. Its `Softplus` is 1.2 % too large at 0.5.

`x / √(mean(x²) + ε)` squares a tensor: in fp16 the squares of numbers below 8e-3 lose digits, and those of numbers above
256 are infinite. `RMSNormalization` is computed with more bits inside.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.graph import name_of

_LEAST = 1e8
_LARGEST = 3e4
# The exponential of -80 is 2e-35: nothing beside a number of fp16, whose smallest is 6e-8.
_LEAST_ARGUMENT = -80.0


def without_large_numbers(editor: Editor) -> None:
    """Constants of 1e8 and above become numbers of 3e3 to 3e4, in the order that they had within a power of ten."""
    for value, array in list(editor.constants()):
        if array.dtype == np.float32 and array.size and np.abs(array).max() >= _LEAST:
            editor.set_value(value, within_range(array))


def within_range(array: np.ndarray) -> np.ndarray:
    """The array with numbers of 1e8 and above divided by the next power of ten, and multiplied by 3e4.

    Example:

    >>> within_range(np.array([-1e30, -5e29, 2.0], "float32")).tolist()
    [-30000.0, -15000.0, 2.0]
    """
    exact = array.astype("float64")
    magnitude = np.minimum(np.abs(exact), float(np.finfo("float32").max))
    is_large = magnitude >= _LEAST
    # The nearest float32 of a power of ten may be a little above it.
    power = np.ceil(np.log10(np.where(is_large, magnitude, _LEAST)) - 1e-6)
    scaled = np.sign(exact) * np.minimum(magnitude / 10.0**power, 1.0) * _LARGEST
    return np.where(is_large, scaled, exact).astype("float32")


def with_bounded_arguments(editor: Editor) -> None:
    """`exp(x)` as `exp(max(x, -80))`."""
    makers = []
    for node in editor.nodes("Exp"):
        make = editor.making(node)
        bounded = make("Max", node.inputs[0], make.constant(np.array(_LEAST_ARGUMENT, "float32"), "least"))
        make.into(name_of(node.outputs[0]), "Exp", bounded)
        makers.append(make)
    editor.replace(*makers)


def with_tanh(editor: Editor) -> None:
    """`x · sigmoid(x)` as `x / 2 + x / 2 · tanh(x / 2)`."""
    makers = []
    for node in editor.nodes("Mul"):
        for x, gate in (node.inputs, node.inputs[::-1]):
            sigmoid = editor.maker(gate, "Sigmoid")
            if sigmoid is not None and sigmoid.inputs[0] is x:
                make = editor.making(node)
                half = make("Mul", x, make.constant(np.array(0.5, "float32"), "share"))
                make.into(name_of(node.outputs[0]), "Add", half, make("Mul", half, make("Tanh", half)))
                makers.append(make)
                break
    editor.replace(*makers)


def without_softplus(editor: Editor) -> None:
    """`softplus(x)` as `max(x, 0) + log(1 + exp(-|x|))`."""
    makers = []
    for node in editor.nodes("Softplus"):
        make = editor.making(node)
        zero, one = (make.constant(np.array(each, "float32"), label) for each, label in ((0.0, "zero"), (1.0, "one")))
        share = make("Exp", make("Neg", make("Abs", node.inputs[0])))
        rest = make("Log", make("Add", share, one))
        make.into(name_of(node.outputs[0]), "Add", make("Max", node.inputs[0], zero), rest)
        makers.append(make)
    editor.replace(*makers)


def with_operators(editor: Editor) -> None:
    """`x · (1 / √(mean(x²) + ε))`, or `x / √(mean(x²) + ε)`, over the last axis, as one operator."""
    makers = []
    for node in editor.nodes("Div", "Mul"):
        for x, root in _factors(editor, node):
            epsilon = _epsilon(editor, x, root)
            width = (editor.shape(x) or (None,))[-1]
            if epsilon is not None and width is not None:
                make = editor.making(node)
                ones = make.constant(np.ones(width, "float32"), "ones")
                make.into(name_of(node.outputs[0]), "RMSNormalization", x, ones, axis=-1, epsilon=epsilon)
                makers.append(make)
                break
    editor.replace(*makers)


def _factors(editor: Editor, node: ir.Node) -> list[tuple[ir.Value | None, ir.Value | None]]:
    """The pairs of a tensor and the square root by which a node divides it."""
    if node.op_type == "Div":
        return [(node.inputs[0], node.inputs[1])]
    pairs = [(node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])]
    inverses = [(x, editor.maker(other, "Reciprocal")) for x, other in pairs]
    return [(x, inverse.inputs[0]) for x, inverse in inverses if inverse is not None]


def _epsilon(editor: Editor, x: ir.Value | None, root: ir.Value | None) -> float | None:
    """ε of a square root of the mean square of a tensor, or None if it is of something else."""
    square_root = editor.maker(root, "Sqrt")
    total = square_root and editor.maker(square_root.inputs[0], "Add")
    if not total:
        return None
    for mean, epsilon in (total.inputs, total.inputs[::-1]):
        value, reduced = editor.value(epsilon), editor.maker(mean, "ReduceMean")
        if value is None or value.size != 1 or reduced is None or not _is_of_last_axis(editor, reduced, x):
            continue
        if _is_square(editor, reduced.inputs[0], x):
            return float(value.reshape(()))
    return None


def _is_of_last_axis(editor: Editor, node: ir.Node, x: ir.Value | None) -> bool:
    axes = editor.value(node.inputs[1]) if len(node.inputs) > 1 else None
    shape = editor.shape(x)
    if axes is None or shape is None or node.attributes.get_int("keepdims", 1) != 1:
        return False
    return axes.reshape(-1).tolist() in ([-1], [len(shape) - 1])


def _is_square(editor: Editor, value: ir.Value | None, x: ir.Value | None) -> bool:
    product, power = None if value is None else value.producer(), editor.maker(value, "Pow")
    if product is not None and product.op_type == "Mul":
        return product.inputs == (x, x)
    if power is None or power.inputs[0] is not x:
        return False
    exponent = editor.value(power.inputs[1])
    return exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == 2
