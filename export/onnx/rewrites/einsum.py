"""Rules that write einsums of two operands as matrix products, in the form that `attention` matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import Sizes, known_sizes, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import multiply
from keras_transformer.export.onnx.rewrites.rule import (
    TRANSPOSED,
    VECTOR,
    OperatorMaker,
    Rule,
    RuleSet,
    array_of,
    is_float,
    node_of,
    scalar,
)
from keras_transformer.export.onnx.weights.lazy_tensors import rearranged


def _without_ones(sizes: Sizes | None) -> Sizes:
    return [size for size in sizes or () if size != 1]


class _Equation(NamedTuple):
    """The labels of an einsum of two operands, by what becomes of them in a matrix product."""

    left: str
    right: str
    result: str
    batch: str
    rows: str
    columns: str
    summed: str

    @classmethod
    def parse(cls, text: str) -> _Equation | None:
        """Returns the equation, or None for one that is no single matrix product."""
        operands, arrow, result = text.replace(" ", "").partition("->")
        left, _, right = operands.partition(",")
        if (
            not arrow
            or not (left + right + result).isalpha()
            or any(len({*each}) < len(each) for each in (left, right))
        ):
            return None
        if ({*left} ^ {*right}) - {*result}:
            return None  # A label of one operand is summed.
        both = [label for label in left if label in right]
        batch = "".join(label for label in result if label in both)
        rows = "".join(label for label in result if label not in right)
        columns = "".join(label for label in result if label not in left)
        found = cls(left, right, result, batch, rows, columns, "".join(label for label in both if label not in result))
        return found.swapped() if columns and result.strip(batch).startswith(columns[0]) else found

    def swapped(self) -> _Equation:
        """The equation of the operands in the other order."""
        return self._replace(left=self.right, right=self.left, rows=self.columns, columns=self.rows)


class EinsumOfTwo(Rule):
    """An einsum as one `MatMul`, with a transpose and a reshape of its operands and its result where they need one."""

    def pattern(self, op: OperatorMaker, x: ir.Value, y: ir.Value) -> ir.Value:
        return op.Einsum(x, y, _outputs=["result"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value, result: ir.Value) -> bool:
        return _equation(result) is not None and sizes_of(x) is not None and sizes_of(y) is not None

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value, result: ir.Value) -> ir.Value | None:
        equation = _equation(result)
        if equation is None:
            return None
        text = node_of(result).attributes.get_string("equation", "").replace(" ", "")
        sizes = dict(zip(text.split("->")[0].replace(",", ""), [*known_sizes(x), *known_sizes(y)], strict=True))
        left, right = (x, y) if text.startswith(f"{equation.left},") else (y, x)
        left = self._arranged(op, left, equation.left, (*equation.batch, equation.rows, equation.summed), sizes)
        right = self._arranged(op, right, equation.right, (*equation.batch, equation.summed, equation.columns), sizes)
        if left is None or right is None:
            return None
        order = equation.batch + equation.rows + equation.columns
        product = op.MatMul(left, right)
        if len(equation.rows) != 1 or len(equation.columns) != 1:
            target = self.target(op, [sizes[label] for label in order])
            product = None if target is None else op.Reshape(product, target)
        if product is None or order == equation.result:
            return product
        return op.Transpose(product, perm=[order.index(label) for label in equation.result])

    def _arranged(
        self, op: OperatorMaker, value: ir.Value, labels: str, groups: Sequence[str], sizes: dict[str, Any]
    ) -> Any:
        """An operand with its axes in the order of the groups, and each group merged to one axis."""
        order = "".join(groups)
        perm = [labels.index(label) for label in order]
        merged: list[Any] = [multiply(*(sizes[label] for label in group)) for group in groups]
        is_merged = any(len(group) != 1 for group in groups)
        if value.const_value is not None and len(value.uses()) == 1 and (is_merged or perm != sorted(perm)):
            return op.Constant(
                value=rearranged(value.const_value, perm, merged), _outputs=[f"{value.name}{TRANSPOSED}"]
            )
        if perm != sorted(perm):
            value = op.Transpose(value, perm=perm)
        target = self.target(op, merged) if is_merged else None
        return value if not is_merged else None if target is None else op.Reshape(value, target)


def _equation(result: ir.Value) -> _Equation | None:
    return _Equation.parse(node_of(result).attributes.get_string("equation", ""))


class StackOfHalves(Rule):
    """Two tensors stacked before their last axis, and both axes then merged, as a concatenation."""

    def pattern(
        self, op: OperatorMaker, first: ir.Value, second: ir.Value, axes: ir.Value, same_axes: ir.Value, shape: ir.Value
    ) -> ir.Value:
        stacked = op.Concat(op.Unsqueeze(first, axes), op.Unsqueeze(second, same_axes), _outputs=["stacked"])
        return op.Reshape(stacked, shape, _outputs=["result"])

    def check(
        self,
        context: MatchContext,
        first: ir.Value,
        second: ir.Value,
        axes: ir.Value,
        same_axes: ir.Value,
        stacked: ir.Value,
        result: ir.Value,
        **_: object,
    ) -> bool:
        sizes, whole = sizes_of(first), sizes_of(result)
        if (
            not is_float(first)
            or not sizes
            or whole is None
            or sizes_of(second) != sizes
            or not isinstance(sizes[-1], int)
        ):
            return False
        axes_of_stack = [scalar(axes), scalar(same_axes), node_of(stacked).attributes.get_int("axis")]
        before_last = all(place in (len(sizes) - 1, -2) for place in axes_of_stack)
        return before_last and _without_ones(whole) == _without_ones([*sizes[:-1], 2 * sizes[-1]])

    def rewrite(
        self, op: OperatorMaker, first: ir.Value, second: ir.Value, result: ir.Value, **_: object
    ) -> ir.Value | None:
        target = self.target(op, known_sizes(result))
        return None if target is None else op.Reshape(op.Concat(first, second, axis=-1), target)


class ScaleOfScores(Rule):
    """`(q k) · c` as `(q · c) k` before a softmax, for the scale of an `Attention`."""

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, factor: ir.Value) -> ir.Value:
        return op.Mul(op.MatMul(query, key), factor, _outputs=["scores"])

    def check(self, context: MatchContext, query: ir.Value, key: ir.Value, factor: ir.Value, scores: ir.Value) -> bool:
        if scalar(factor) is None or any(len(sizes_of(each) or ()) != 4 for each in (query, key)):
            return False
        users = list(scores.consumers())
        users += [user for each in users if each.op_type in ("Add", "Mul") for user in each.outputs[0].consumers()]
        users += [user for each in users if each.op_type == "Add" for user in each.outputs[0].consumers()]
        return any(user.op_type == "Softmax" for user in users)

    def rewrite(
        self, op: OperatorMaker, query: ir.Value, key: ir.Value, factor: ir.Value, scores: ir.Value
    ) -> ir.Value:
        return op.MatMul(op.Mul(query, factor), key)


class BiasOfReshape(Rule):
    """`Reshape(matrix) + bias` of heads as `Reshape(matrix + bias)`."""

    def pattern(self, op: OperatorMaker, x: ir.Value, shape: ir.Value, bias: ir.Value) -> ir.Value:
        return op.Add(op.Reshape(x, shape, _outputs=["transposed"]), bias)

    def check(self, context: MatchContext, x: ir.Value, shape: ir.Value, bias: ir.Value, transposed: ir.Value) -> bool:
        flat, sizes, part = sizes_of(x), sizes_of(transposed), sizes_of(bias)
        if bias.const_value is None or not is_float(x) or flat is None or sizes is None or len(flat) != 2 or not part:
            return False
        return part == sizes[-len(part) :] and multiply(*part) == flat[1] and len(part) < len(sizes) and len(part) > 1

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, shape: ir.Value, bias: ir.Value, transposed: ir.Value
    ) -> ir.Value:
        vector = ir.tensor(np.ascontiguousarray(array_of(bias).reshape(-1)))
        return op.Reshape(op.Add(x, op.Constant(value=vector, _outputs=[f"{bias.name}{VECTOR}"])), shape)


def einsum_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for einsums, and for what stands around those of attention."""
    return [
        RuleSet([EinsumOfTwo(dims), StackOfHalves(dims)]),
        RuleSet([ScaleOfScores(dims), BiasOfReshape(dims)], commute=True),
    ]
