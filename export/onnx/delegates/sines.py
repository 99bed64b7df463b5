"""Sines and cosines with all digits of float32: constants, lookups in a table, or products and sums.

Accelerators compute sines with few correct digits: WGSL promises an error of 2**-11 between -pi and pi, and nothing
outside, and in 16 bits an angle of 500 has a step of 0.25. The angles of rotary positions depend on the index of a slot of
the cache alone, which is below its length: their sines are known when the file is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.graph import NodeMaker, name_of
from keras_transformer.export.onnx.options import DEFAULT_OPSET

_FUNCTIONS = {"Sin": np.sin, "Cos": np.cos}
# Larger tables, in numbers, are not written.
_MOST = 2**22
# Pi in three parts, the first two of few bits, so that their products with small integers are exact (Cody and Waite).
_PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)
# sin(r) / r as a polynomial of r * r: the terms of its series, whose rest is below 6e-8 between -pi/2 and pi/2.
_SERIES = (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)


def with_sine_tables(editor: Editor) -> None:
    """Replaces sines and cosines of constants, and of what depends on the index of a slot of the cache alone.

    Args:
        editor: `Editor` of a graph of fixed shapes, with the number of slots if there is a cache.
    """
    angles: dict[ir.Value | None, tuple[ir.Value | None, np.ndarray] | None] = {}
    makers = []
    for node in editor.nodes(*_FUNCTIONS):
        if node.inputs[0] not in angles:
            angles[node.inputs[0]] = _angles(editor, node.inputs[0])
        source, values = angles[node.inputs[0]] or (None, None)
        if values is None or (source is None and node.outputs[0].is_graph_output()):
            continue
        # In double precision: runtimes round the angle to 32 bits, as the model does, and then compute its sine exactly.
        sines = _FUNCTIONS[node.op_type](values.astype("float64")).astype("float32")
        if source is None:
            editor.make_constant(node, sines[0])
        else:
            makers.append(_lookup(editor, node, source, sines))
    editor.replace(*makers)
    if angles:
        editor.clean()


def _lookup(editor: Editor, node: ir.Node, source: ir.Value, sines: np.ndarray) -> NodeMaker:
    """A lookup in place of a sine, by the number of a slot."""
    make, index = editor.making(node), source
    if editor.shape(source) != (1,):
        index = make("Reshape", source, make.constant(np.array([1]), "one"))
    row = make("Gather", make.constant(sines.reshape(len(sines), -1), "sines"), index, axis=0)
    make.into(name_of(node.outputs[0]), "Reshape", row, make.constant(np.array(sines.shape[1:], "int64"), "shape"))
    return make


def _angles(editor: Editor, value: ir.Value | None) -> tuple[ir.Value | None, np.ndarray] | None:
    """`(source, angles)`: the input that the angles depend on, if any, and the angles for each of its values; or None."""
    if value is None:
        return None
    nodes, inputs = _cone(editor, value)
    source, count = None, 1
    if inputs:
        if editor.index is None or editor.slots is None or inputs != {editor.index}:
            return None
        source, count = editor.index, editor.slots
        if editor.shape(source) not in ((), (1,)):
            return None
    evaluate = _evaluator(editor, nodes, value, source)
    first = evaluate(0)
    if first.dtype != np.float32 or count * first.size > _MOST:
        return None
    return source, np.stack([first, *(evaluate(number) for number in range(1, count))])


def _cone(editor: Editor, value: ir.Value) -> tuple[list[ir.Node], set[ir.Value]]:
    """The nodes that compute a tensor, in their order, and what else it depends on but constants."""
    found: set[ir.Node] = set()
    waiting, inputs = [value], set()
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if editor.value(each) is not None:
            continue
        if node is None:
            inputs.add(each)
        elif node not in found:
            found.add(node)
            waiting += [other for other in node.inputs if other is not None]
    return [node for node in editor.graph if node in found], inputs


def _evaluator(
    editor: Editor, nodes: list[ir.Node], value: ir.Value, source: ir.Value | None
) -> Callable[[int], np.ndarray]:
    """A function from the value of the source to the value of a tensor, by the interpreter of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    read = {each for node in nodes for each in node.inputs if each is not None} | {value}
    arrays = {name_of(each): editor.value(each) for each in sorted(read, key=name_of)}
    constants = [numpy_helper.from_array(array, key) for key, array in arrays.items() if array is not None]
    given, name = [] if source is None else [ir.to_proto(source)], name_of(value)
    protos = [ir.to_proto(each) for each in nodes]
    part = helper.make_graph(protos, "angles", given, [onnx.ValueInfoProto(name=name)], constants)
    # The operators of angles are the same in all opsets that are written.
    evaluator: Any = ReferenceEvaluator(helper.make_model(part, opset_imports=[helper.make_opsetid("", DEFAULT_OPSET)]))
    if source is None or source.dtype is None:
        return lambda number: np.asarray(evaluator.run([name], {})[0])
    dtype, shape = source.dtype.numpy(), [1] * len(editor.shape(source) or ())
    return lambda number: np.asarray(evaluator.run([name], {source.name: np.full(shape, number, dtype)})[0])


def with_sine_polynomials(editor: Editor) -> None:
    """Replaces the sines and cosines of a graph by polynomials of the rest of the angle by pi, with a sign.

    Args:
        editor: `Editor` of a graph whose sines are of float32.
    """
    editor.replace(*[_polynomial(editor, node) for node in editor.nodes("Sin", "Cos")])


def _polynomial(editor: Editor, node: ir.Node) -> NodeMaker:
    make = editor.making(node)
    numbers: dict[float, ir.Value] = {}

    def number(value: float) -> ir.Value:
        if value not in numbers:
            numbers[value] = make.constant(np.array(value, "float32"), f"number_{len(numbers)}")
        return numbers[value]

    # sin(x) = (-1)^k sin(x - k pi), and cos(x) = (-1)^(k + 1) sin(x - (k + 1/2) pi).
    is_sine, angle = node.op_type == "Sin", node.inputs[0]
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
    make.into(name_of(node.outputs[0]), "Mul", sine, sign)
    return make
