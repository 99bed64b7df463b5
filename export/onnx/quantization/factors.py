"""Products by a positive number in integers: the codes stay, and the scale that they are read with changes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import drop_unread_constants, name_of
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of

_SUFFIX = "_DequantizeLinear_Output"
# By what share scales may differ.
_CLOSE = 1e-4


def factors_of(graph: ir.Graph) -> dict[str, float]:
    """The positive numbers that tensors are multiplied by, by the names of the results.

    Args:
        graph: a float graph.
    """
    found: dict[str, float] = {}
    for node in graph:
        constants = [each for each in node.inputs if each is not None and each.is_initializer()]
        sizes = constants[0].shape if len(constants) == 1 else None
        if node.op_type != "Mul" or sizes is None or math.prod(sizes.numpy()) != 1:
            continue
        number = float(np.asarray(constant_of(constants[0])).reshape(-1)[0])
        if number > 0:
            found[name_of(node.outputs[0])] = number
    return found


def drop_factors(graph: ir.Graph, factors: Mapping[str, float]) -> int:
    """Removes products by a number whose result has the codes of the other factor.

    Args:
        graph: the quantized graph, changed in place.
        factors: those of the float graph.

    Returns:
        How many were removed.
    """
    found = [node for node in graph if node.op_type == "Mul" and _drop(graph, node, factors)]
    drop_unread_constants(graph)
    return len(found)


def _drop(graph: ir.Graph, node: ir.Node, factors: Mapping[str, float]) -> bool:
    factor = factors.get(name_of(node.outputs[0]))
    sources = [None if each is None else each.producer() for each in node.inputs]
    reader = next((each for each in sources if each is not None and _is_activation(each)), None)
    users = [user for user, _ in node.outputs[0].uses()]
    if factor is None or reader is None or [each.op_type for each in users] != ["QuantizeLinear"]:
        return False
    (writer,) = users
    if not is_scaled(step_of(reader), factor, step_of(writer)):
        return False
    codes = reader.inputs[0]
    assert codes is not None
    writer.outputs[0].replace_all_uses_with(codes)
    graph.remove([node, writer], safe=True)
    for each in sources:
        if each is not None and not each.outputs[0].uses():
            graph.remove(each, safe=True)
    return True


def is_scaled(step: tuple[float, float], factor: float, other: tuple[float, float]) -> bool:
    """Whether codes of one scale and zero point, times a factor, are the same codes of another.

    Example:

    >>> is_scaled((0.5, 128), 3.0, (1.5, 128)), is_scaled((0.5, 128), 3.0, (1.5, 127))
    (True, False)
    """
    return step[1] == other[1] and math.isclose(step[0] * factor, other[0], rel_tol=_CLOSE)


def factor_before(node: ir.Node, factors: Mapping[str, float]) -> float:
    """The factor of what a node between integers and floats computes; 0 if there is none."""
    return factors.get(name_of(node.outputs[0]).removesuffix(_SUFFIX), 0.0)


def step_of(node: ir.Node) -> tuple[float, float]:
    """The scale and the zero point of a node between floats and integers."""
    scale, zero = node.inputs[1:3]
    return _number(scale), _number(zero)


def _number(value: ir.Value | None) -> float:
    return 0.0 if value is None else float(np.asarray(constant_of(value)).reshape(()))


def _is_activation(node: ir.Node) -> bool:
    codes = node.inputs[0]
    return node.op_type == "DequantizeLinear" and codes is not None and not codes.is_initializer()
