"""Sines and cosines with all digits of float32.

A GPU computes them with few correct digits: WGSL promises an error of 2**-11 between -pi and pi, and nothing outside. The
angles of rotary positions are a number times constants. Where the number is the index of a slot of a cache, all of them are
known, and the sines are a table. Others are computed by products and sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_FUNCTIONS = {"SIN": np.sin, "COS": np.cos}
_ELEMENTWISE = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply}
_MOST = 2**22
# Pi in three parts, the first two of few bits, so that their products with small integers are exact (Cody and Waite).
_PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)
# sin(r) / r as a polynomial of r * r: the terms of its series, whose rest is below 6e-8 between -pi/2 and pi/2.
_SERIES = (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)


def with_tables(graph: Graph, operator: OperatorT) -> bool:
    """A lookup in place of a sine or cosine of what depends on the index of a slot alone."""
    kind, output = graph.kind(operator), int(operator.outputs[0])
    if kind not in _FUNCTIONS:
        return False
    leaves = _leaves(graph, int(operator.inputs[0]))
    source = leaves.pop() if len(leaves) == 1 else None
    size, shape = 0 if source is None else graph.limits.get(source, 0), graph.shape(output)
    if source is None or not 0 < size * np.prod(shape) <= _MOST:
        return False
    angles = _values(graph, int(operator.inputs[0]), source, np.arange(size, dtype="int32"))
    if angles is None:
        return False
    # In double precision: the runtime rounds the angle, as the model does, and then computes its sine exactly.
    table = _FUNCTIONS[kind](angles.astype("float64")).astype("float32").reshape(size, -1)
    options = schema().GatherOptionsT()
    number = graph.emit_reshape(source, (1,))
    tensors = (graph.constant(table, "angles"), number)
    row = graph.emit("GATHER", tensors, ("FLOAT32", (1, table.shape[1])), options, like=output)
    graph.emit_reshape(row, shape, output)
    return True


def _leaves(graph: Graph, index: int) -> set[int]:
    """The tensors that a tensor depends on: inputs, and results of operators other than elementwise ones."""
    if graph.is_constant(index):
        return set()
    maker = graph.makers.get(index)
    if maker is None or graph.kind(maker) not in (*_ELEMENTWISE, "RESHAPE", "CAST"):
        return {index}
    return set().union(*(_leaves(graph, each) for each in indices(maker.inputs)))


def _values(graph: Graph, index: int, source: int, numbers: np.ndarray) -> np.ndarray | None:
    """The values `(count, ...)` of a tensor for several values of the source; None where they are not known."""
    if index == source:
        return numbers.reshape(-1, *graph.shape(index))
    constant = graph.small_value(index)
    if constant is not None:
        return np.broadcast_to(constant, (len(numbers), *constant.shape))
    maker = graph.makers[index]
    kind, shape = graph.kind(maker), graph.shape(index)
    inputs = indices(maker.inputs)
    parts = [_values(graph, each, source, numbers) for each in (inputs if kind in _ELEMENTWISE else inputs[:1])]
    known = [each for each in parts if each is not None]
    if len(known) < len(parts) or getattr(maker.builtinOptions, "fusedActivationFunction", False):
        return None
    if kind in _ELEMENTWISE:
        aligned = [each.reshape(len(numbers), *(1,) * (len(shape) + 1 - each.ndim), *each.shape[1:]) for each in known]
        return _ELEMENTWISE[kind](*aligned)
    dtype = {"FLOAT32": "float32", "INT32": "int32"}.get(graph.type(index))
    return None if dtype is None else known[0].astype(dtype).reshape(len(numbers), *shape)


def with_polynomials(graph: Graph, operator: OperatorT) -> bool:
    """A sine or cosine as a polynomial of the rest of the angle by pi, with a sign."""
    kind, source, output = graph.kind(operator), int(operator.inputs[0]), int(operator.outputs[0])
    if kind not in _FUNCTIONS or graph.type(source) != "FLOAT32":
        return False
    shape = graph.shape(output)

    def make(name: str, *inputs: int, into: int | None = None) -> int:
        options = {"ADD": schema().AddOptionsT, "SUB": schema().SubOptionsT, "MUL": schema().MulOptionsT}.get(name)
        result = ("FLOAT32", shape) if into is None else into
        return graph.emit(name, inputs, result, options() if options else None, like=output)

    def number(value: float) -> int:
        return graph.constant(np.array(value, "float32"), "number")

    # sin(x) = (-1)^k sin(x - k pi), and cos(x) = (-1)^(k + 1) sin(x - (k + 1/2) pi).
    turns = make("MUL", source, number(1 / np.pi))
    count = make("FLOOR", make("ADD", turns, number(0.5)) if kind == "SIN" else turns)
    middle = count if kind == "SIN" else make("ADD", count, number(0.5))
    rest = source
    for part in _PI:
        rest = make("SUB", rest, make("MUL", middle, number(part)))
    halves = make("FLOOR", make("MUL", count, number(0.5)))
    odd = make("SUB", count, make("MUL", halves, number(2.0)))
    first, slope = (1.0, -2.0) if kind == "SIN" else (-1.0, 2.0)
    sign = make("ADD", make("MUL", odd, number(slope)), number(first))
    square = make("SQUARE", rest)
    total = make("MUL", square, number(_SERIES[-1]))
    for term in _SERIES[-2::-1]:
        total = make("MUL", make("ADD", total, number(term)), square)
    sine = make("MUL", make("ADD", total, number(1.0)), rest)
    make("MUL", sine, sign, into=output)
    return True
