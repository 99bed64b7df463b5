"""Multiply-adds of the nodes of a TensorFlow graph, from their shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.planning.errors import UnknownCostError

if TYPE_CHECKING:
    import tensorflow as tf

_Shape = tuple[int, ...]


def elements(tensor: tf.Tensor) -> int:
    """Returns the number of elements of a symbolic tensor.

    Raises:
        UnknownCostError: its shape is not known.
    """
    count = tensor.shape.num_elements()
    if count is None:
        raise UnknownCostError(f"The shape of {tensor.name} ({tensor.op.type}) is not known: {tensor.shape}")
    return count


def multiply_adds(node: tf.Operation) -> int:
    """Returns the multiply-adds of a matrix product, an einsum or a convolution; 0 for any other node."""
    shapes = [tuple(tensor.shape) for tensor in node.inputs]
    if node.type == "MatMul":
        return elements(node.outputs[0]) * shapes[0][0 if node.get_attr("transpose_a") else 1]
    if node.type.startswith("BatchMatMul"):
        return elements(node.outputs[0]) * shapes[0][-2 if node.get_attr("adj_x") else -1]
    if node.type in ("Einsum", "XlaEinsum"):
        return einsum_multiply_adds(node.get_attr("equation").decode(), shapes)
    if node.type.startswith(("Conv", "DepthwiseConv")):
        return _convolution_multiply_adds(node, shapes)
    return 0


def einsum_multiply_adds(equation: str, shapes: Sequence[_Shape]) -> int:
    """Returns the multiply-adds of an einsum: the product of the sizes of all its axes.

    Example:

    >>> einsum_multiply_adds("...ij,jk->...ik", [(5, 2, 3), (3, 4)])
    120
    """
    sizes: dict[str, int] = {}
    for axes, shape in zip(equation.replace(" ", "").split("->")[0].split(","), shapes, strict=True):
        head, _, tail = axes.partition("...")
        free = len(shape) - len(head) - len(tail)
        names = [*head, *(f".{free - index}" for index in range(free)), *tail]
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    return math.prod(sizes.values())


def _convolution_multiply_adds(node: tf.Operation, shapes: list[_Shape]) -> int:
    """Every element of the forward output uses one kernel, in the forward pass and in both backward passes."""
    if "BackpropFilter" in node.type:
        kernel, output = tuple(node.outputs[0].shape), shapes[2]
    elif "BackpropInput" in node.type:
        kernel, output = shapes[1], shapes[2]
    else:
        kernel, output = shapes[1], tuple(node.outputs[0].shape)
    return math.prod(output) * math.prod(kernel[:-2] if node.type.startswith("Depthwise") else kernel[:-1])
