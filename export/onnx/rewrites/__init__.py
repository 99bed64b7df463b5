"""Rewrite rules of ONNX graphs: a file for each kind of pattern, and `RULES` and `LAST_RULES`, which list them.

To add one: a file with a function of `Dims` and `OnnxOptions` that returns rule sets, a line in one of the two, and a case
in `tests/export/test_onnx_optimize.py`.
"""

from typing import Protocol

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.rewrites.attention import attention_rules
from keras_transformer.export.onnx.rewrites.cached_attention import cache_rules
from keras_transformer.export.onnx.rewrites.channels_first import channels_first_rules
from keras_transformer.export.onnx.rewrites.einsum import einsum_rules
from keras_transformer.export.onnx.rewrites.fusions import fusion_rules
from keras_transformer.export.onnx.rewrites.masks import mask_rules
from keras_transformer.export.onnx.rewrites.reshapes import reshape_rules
from keras_transformer.export.onnx.rewrites.rotary import rotary_rules
from keras_transformer.export.onnx.rewrites.rule import RuleSet
from keras_transformer.export.onnx.rewrites.scatter import scatter_rules


class MakeRules(Protocol):
    """Makes rule sets for a graph of known shapes."""

    def __call__(self, dims: Dims, options: OnnxOptions, /) -> list[RuleSet]: ...


# The least opset that each needs, in the order in which they are applied.
RULES: tuple[tuple[int, MakeRules], ...] = (
    (18, einsum_rules),
    (18, fusion_rules),
    (23, rotary_rules),
    (23, mask_rules),
    (23, attention_rules),
    (18, channels_first_rules),
    (18, reshape_rules),
)
# Those that are applied where no other is left to be: they take in what others have fused.
LAST_RULES: tuple[tuple[int, MakeRules], ...] = ((23, cache_rules), (24, scatter_rules))


def rule_sets(dims: Dims, options: OnnxOptions) -> tuple[list[RuleSet], list[RuleSet]]:
    """Returns the rule sets for the opset of `options`: those of `RULES` in their order, and those of `LAST_RULES`."""

    def chosen(rules: tuple[tuple[int, MakeRules], ...]) -> list[RuleSet]:
        return [each for opset, make_rules in rules if options.target >= opset for each in make_rules(dims, options)]

    return chosen(RULES), chosen(LAST_RULES)
