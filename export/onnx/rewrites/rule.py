"""The base class of rewrite rules, and predicates on values."""

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleClassBase, RewriteRuleSet, pattern

from keras_transformer.export.onnx.shapes.dims import Dims
from keras_transformer.export.onnx.shapes.integers import constant, sizes_of

CONTRIB = "com.microsoft"
# Suffixes of constants that were made of a weight: `naming` finds the weight by them.
VECTOR, TRANSPOSED = "/as_vector", "/transposed"


class Rule(RewriteRuleClassBase):
    """A rewrite rule with the symbolic sizes of the graph.

    Args:
        dims: `Dims` of the graph.
        op_type: the operator of the pattern, for a rule that applies to several; otherwise "".
    """

    def __init__(self, dims: Dims, op_type: str = "") -> None:
        super().__init__(op_type or None)
        self.dims = dims
        self.op_type = op_type

    def ints(self, op: Any, *numbers: int) -> ir.Value:
        """Returns an int64 vector constant."""
        return op.Constant(value=ir.tensor(list(numbers), dtype=ir.DataType.INT64))

    def target(self, op: Any, sizes: Sequence[Any]) -> ir.Value | None:
        """Returns the target of a reshape: one symbolic size is -1, further ones are read from the inputs of the graph.

        None if one of those is not a size of an input.
        """
        unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
        if len(unknown) < 2:
            return self.ints(op, *(-1 if axis in unknown else size for axis, size in enumerate(sizes)))
        # The first symbolic size is usually the batch.
        return self.dims.shape_tensor(op, [*sizes[: unknown[0]], -1, *sizes[unknown[0] + 1 :]])


def attributes_of(value: Any) -> dict[str, Any]:
    """Returns the attributes of the producer of a value, as keyword arguments for the same operator."""
    return {name: attribute.value for name, attribute in value.producer().attributes.items()}


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


def is_matrix(value: ir.Value | None) -> bool:
    """Whether a value is of rank 2."""
    sizes = sizes_of(value)
    return sizes is not None and len(sizes) == 2


class _RootMatcher(pattern.SimplePatternMatcher):
    """Compares the operator of a node first, which excludes most nodes for most rules."""

    def __init__(self, graph_pattern: Any) -> None:
        super().__init__(graph_pattern)
        self._root = graph_pattern.output_nodes[0].op_identifier()
        self._no_match = pattern.MatchResult().fail("another operator")

    def match(self, model: Any, graph_or_function: Any, node: Any, **options: Any) -> pattern.MatchResult:
        if self._root is not None and node.op_type != self._root[1]:
            return self._no_match
        return super().match(model, graph_or_function, node, **options)


def rule_set(rules: Sequence[Rule], commute: bool = False) -> RewriteRuleSet:
    """Returns rules as a rule set of `onnxscript`.

    Args:
        rules: list of `Rule`.
        commute: bool. Whether the operands of sums and products match in either order.
    """
    found = [
        pattern.RewriteRule(rule.pattern, rule.rewrite, rule.check, _RootMatcher, name=rule.name) for rule in rules
    ]
    return pattern.RewriteRuleSet(found, commute=commute)
