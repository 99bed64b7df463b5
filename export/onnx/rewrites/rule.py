"""The base class of rewrite rules, and predicates on values."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from onnxscript import optimizer
from onnxscript.rewriter import pattern

from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant

# The order of axes that swaps tokens and heads.
SWAP = [0, 2, 1, 3]
# Suffixes of constants that were made of a weight: `naming` finds the weight by them.
VECTOR, TRANSPOSED = "/as_vector", "/transposed"


class OperatorMaker(Protocol):
    """What patterns and their replacements are written with: it has a method for each operator, of the operator's name."""

    def __getattr__(self, name: str) -> Callable[..., ir.Value]: ...


class Rule:
    """A rewrite rule with the symbolic sizes of the graph.

    A rule has three methods, as those of `onnxscript` do: `pattern(op, ...)`, whose parameters are the variables of the
    pattern, `check(context, ...)`, whether found values are what the rule is for, and `rewrite(op, ...)`, which makes their
    replacement, or None where there is none.

    Args:
        dims: `Dims` of the graph.
        op_type: the operator of the pattern, for a rule that applies to several; otherwise "".
    """

    pattern: Callable[..., ir.Value]
    check: Callable[..., bool]
    rewrite: Callable[..., object]

    def __init__(self, dims: Dims, op_type: str = "") -> None:
        self.name = op_type or type(self).__name__
        self.dims = dims
        self.op_type = op_type

    def ints(self, op: OperatorMaker, *numbers: int) -> ir.Value:
        """Returns an int64 vector constant."""
        return op.Constant(value=ir.tensor(list(numbers), dtype=ir.DataType.INT64))

    def target(self, op: OperatorMaker, sizes: Sequence[Any]) -> ir.Value | None:
        """Returns the target of a reshape: one symbolic size is -1, further ones are read from the inputs of the graph.

        None if one of those is not a size of an input.
        """
        unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
        if len(unknown) < 2:
            return self.ints(op, *(-1 if axis in unknown else size for axis, size in enumerate(sizes)))
        # The first symbolic size is usually the batch.
        return self.dims.shape_tensor(op, [*sizes[: unknown[0]], -1, *sizes[unknown[0] + 1 :]])


def results_of(made: ir.Value | Iterable[ir.Value]) -> list[ir.Value]:
    """Returns the results of an operator that an `OperatorMaker` made."""
    return [made] if isinstance(made, ir.Value) else list(made)


def node_of(value: ir.Value) -> ir.Node:
    """Returns the node that computes a value of a pattern, which has one."""
    node = value.producer()
    if node is None:
        raise ValueError(f"{value.name} is computed by no node.")
    return node


def array_of(value: ir.Value) -> np.ndarray:
    """Returns the array of a constant or an initializer."""
    if value.const_value is None:
        raise ValueError(f"{value.name} is not constant.")
    return value.const_value.numpy()


def attributes_of(value: ir.Value) -> dict[str, Any]:
    """Returns the attributes of the producer of a value, as keyword arguments for the same operator."""
    return {name: attribute.value for name, attribute in node_of(value).attributes.items()}


def scalar(value: ir.Value | None) -> Any:
    """Returns the number in a constant of one element, or None."""
    array = constant(value)
    return None if array is None or array.size != 1 else array.reshape(()).item()


def is_close(value: ir.Value | None, number: float, tolerance: float = 1e-5) -> bool:
    """Whether a value is a constant of one element, close to a number."""
    found = scalar(value)
    return found is not None and math.isclose(found, number, rel_tol=tolerance, abs_tol=1e-12)


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is of float32."""
    return value is not None and value.dtype == ir.DataType.FLOAT


class RuleSet:
    """Rules that are applied in one walk over a graph.

    `onnxscript` matches the patterns and makes the new nodes. It would try every rule at every node: here a node meets
    those rules alone whose pattern ends in its operator.

    Args:
        rules: list of `Rule`.
        commute: bool. Whether the operands of sums and products match in either order.
    """

    def __init__(self, rules: Sequence[Rule], commute: bool = False) -> None:
        self._rules: dict[str, list[pattern.RewriteRule]] = {}
        for rule in rules:
            found = pattern.RewriteRule(rule.pattern, rule.rewrite, rule.check, name=rule.name)
            for each in found.commute() if commute else [found]:
                root: Any
                (root,) = each._target_pattern.output_nodes
                self._rules.setdefault(root.op.value(), []).append(each)

    def apply(self, model: ir.Model) -> int:
        """Applies the rules to a graph and to the bodies in it, in place; returns how often one was applied."""
        return self._apply(model, model.graph)

    def _apply(self, model: ir.Model, graph: ir.Graph) -> int:
        count = 0
        for node in graph:
            if self._rewrite(model, graph, node):
                count += 1
                continue
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    count += self._apply(model, attribute.as_graph())
        return count

    def _rewrite(self, model: ir.Model, graph: ir.Graph, node: ir.Node) -> bool:
        for rule in self._rules.get(node.op_type, ()):
            found = rule.try_rewrite(model, graph, node)
            if found is None:
                continue
            for value in found.new_initializers:
                graph.initializers.add(value)
            matched = found.match
            optimizer.basic_constant_propagation(found.new_nodes)
            ir.convenience.replace_nodes_and_values(
                graph, node, matched.nodes, found.new_nodes, matched.outputs, found.new_outputs
            )
            return True
        return False
