"""Sums of products that an equation describes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import TFLITE, Attributes, Decomposed, Operation
from keras_transformer.planning.graph.multiply_adds import einsum_multiply_adds
from keras_transformer.utils.types import Tensor


def sum_of_diagonals(*operands: Tensor, equation: str) -> Tensor:
    """A sum of products in which an operand has a label twice: that of its diagonals."""
    given, result = equation.replace(" ", "").split("->")
    pairs = [_without_repeats(*pair) for pair in zip(operands, given.split(","), strict=True)]
    if all(label in result for _, labels in pairs for label in labels):
        return _product(pairs, result)
    return tf.einsum(f"{','.join(labels for _, labels in pairs)}->{result}", *(x for x, _ in pairs))


def _without_repeats(x: Tensor, labels: str) -> tuple[Tensor, str]:
    """A tensor with one axis for each label, and the labels of its axes."""
    while repeated := next((each for each in labels if labels.count(each) > 1), ""):
        first, second = [axis for axis, each in enumerate(labels) if each == repeated][:2]
        others = [axis for axis in range(len(labels)) if axis not in (first, second)]
        x = tf.linalg.diag_part(tf.transpose(x, [*others, first, second]))
        labels = "".join(labels[axis] for axis in others) + repeated
    return x, labels


def product_of_all(*operands: Tensor, equation: str) -> Tensor:
    """The products of all elements of two tensors: an einsum that adds nothing up."""
    given, result = equation.split("->")
    return _product(zip(operands, given.split(","), strict=True), result)


def sum_of_products(*operands: Tensor, equation: str) -> Tensor:
    """The sums of the products of two tensors with the same axes, element by element."""
    given, result = equation.split("->")
    pairs = list(zip(operands, given.split(","), strict=True))
    every = result + "".join(label for label in pairs[0][1] if label not in result)
    return tf.reduce_sum(_product(pairs, every), list(range(len(result), len(every))))


def _product(pairs: Iterable[tuple[Tensor, str]], result: str) -> Tensor:
    """The product of tensors with the labels of their axes, all of which the result has."""
    return functools.reduce(tf.multiply, (_aligned(*pair, result) for pair in pairs))


def _aligned(x: Tensor, labels: str, result: str) -> Tensor:
    """A tensor with an axis for each label of the result, of size 1 for those that it lacks."""
    own = [label for label in result if label in labels]
    x = x if list(labels) == own else tf.transpose(x, [labels.index(label) for label in own])
    for axis, label in enumerate(result):
        x = x if label in labels else tf.expand_dims(x, axis)
    return x


def _has_repeats(node: Node) -> bool:
    equation = node.attribute("equation").replace(" ", "")
    operands = equation.split("->")[0].split(",")
    is_plain = re.fullmatch(r"[a-zA-Z,]+->[a-zA-Z]*", equation) is not None
    return is_plain and any(len(set(each)) < len(each) for each in operands)


def _labels(node: Node) -> tuple[list[str], str]:
    """The labels of each operand, and of the result; no operands where one repeats a label or leaves axes open."""
    operands, result = node.attribute("equation").split("->")
    labels = operands.split(",")
    is_plain = "." not in operands and all(len(set(each)) == len(each) for each in labels)
    return labels if is_plain else [], result


def _adds_nothing(node: Node) -> bool:
    """Whether an einsum of two operands adds nothing up, and the converter does not take it.

    It takes what has no axis in both operands, and at most one dynamic size in each.
    """
    labels, result = _labels(node)
    if len(labels) != 2 or set(result) != set("".join(labels)):
        return False
    shapes = [node.part.spec(each).shape for each in node.inputs]
    is_dynamic = any(shape.rank and shape.as_list().count(None) > 1 for shape in shapes)
    return is_dynamic or not set(labels[0]).isdisjoint(labels[1])


def _adds_elements(node: Node) -> bool:
    """Whether two operands have the same axes, and the result some: the converter does not take all of these."""
    labels, result = _labels(node)
    return len(labels) == 2 and set(labels[0]) == set(labels[1]) > set(result)


def _of_einsum(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    shapes = [tuple(each.shape) for each in inputs]
    return einsum_multiply_adds(attributes["equation"].s.decode(), shapes) / max(1, math.prod(result.shape))


_DIAGONALS = Decomposed(sum_of_diagonals, ("equation",), _has_repeats)
_ALL = Decomposed(product_of_all, ("equation",), _adds_nothing)

_ELEMENTS = Decomposed(sum_of_products, ("equation",), _adds_elements)

OPERATIONS = (Operation("Einsum", {TFLITE: (_DIAGONALS, _ALL, _ELEMENTS)}, rounds=True, sum_length=_of_einsum),)
