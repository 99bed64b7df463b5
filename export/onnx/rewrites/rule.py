"""What the rewrite rules share."""

import math

import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleClassBase, pattern

from keras_transformer.export.onnx.shapes.integers import constant, sizes_of

CONTRIB = "com.microsoft"
# Suffixes of constants that were made of a weight: `naming` finds the weight by them.
VECTOR, TRANSPOSED = "/as_vector", "/transposed"


class Rule(RewriteRuleClassBase):
    """A rule that may read sizes.

    Args:
        dims: `dims.Dims` of the graph.
        op_type: the operator that the pattern is for, where the rule serves several.
    """

    def __init__(self, dims=None, op_type=None):
        super().__init__(op_type)
        self.dims = dims
        self.op_type = op_type

    def ints(self, op, *numbers):
        return op.Constant(value=ir.tensor(list(numbers), dtype=ir.DataType.INT64))

    def target(self, op, sizes):
        """The shortest way to say a shape: one unknown size is -1, others are read from the inputs of the graph."""
        unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
        if len(unknown) < 2:
            return self.ints(op, *(-1 if axis in unknown else size for axis, size in enumerate(sizes)))
        # The batch may be anything: let it be what remains.
        return self.dims.shape_tensor(op, [*sizes[: unknown[0]], -1, *sizes[unknown[0] + 1 :]])


def attributes_of(value):
    """The attributes of the node that makes a value, as keywords for the same operator."""
    return {name: attribute.value for name, attribute in value.producer().attributes.items()}


def scalar(value):
    """The one number that a constant holds, or None."""
    array = constant(value)
    return None if array is None or array.size != 1 else array.reshape(()).item()


def is_close(value, number, tolerance=1e-5):
    """Whether a constant is this number."""
    found = scalar(value)
    return found is not None and math.isclose(found, number, rel_tol=tolerance, abs_tol=1e-12)


def is_float(value):
    return value is not None and value.dtype == ir.DataType.FLOAT


def is_matrix(value):
    sizes = sizes_of(value)
    return sizes is not None and len(sizes) == 2


class _RootMatcher(pattern.SimplePatternMatcher):
    """Looks at the operator of a node before anything else: most nodes are of no interest to most rules."""

    def __init__(self, graph_pattern):
        super().__init__(graph_pattern)
        self._root = graph_pattern.output_nodes[0].op_identifier()
        self._no_match = pattern.MatchResult().fail("another operator")

    def match(self, model, graph_or_function, node, **options):
        if self._root is not None and node.op_type != self._root[1]:
            return self._no_match
        return super().match(model, graph_or_function, node, **options)


def rule_set(rules, commute=False):
    """Rules as `onnxscript` applies them.

    Args:
        rules: list of `Rule`.
        commute: bool. Whether sums and products match in either order.
    """
    found = [
        pattern.RewriteRule(rule.pattern, rule.rewrite, rule.check, _RootMatcher, name=rule.name) for rule in rules
    ]
    return pattern.RewriteRuleSet(found, commute=commute)
