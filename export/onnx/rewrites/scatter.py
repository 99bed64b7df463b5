"""A rule that fuses the update of a key/value cache into `TensorScatter` (opset 24)."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import known_sizes
from keras_transformer.export.onnx.rewrites.cache_slots import Slots
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet


class TensorScatter(Rule):
    """`ScatterND` to every row, every head and the slots from each row's index on, in this order.

    `past` is `(B, K, L, H)`, the indices are `(B · T · K, 3)`, and the update is `(B · T · K, H)`.
    """

    def pattern(self, op: OperatorMaker, past: ir.Value, indices: ir.Value, update: ir.Value) -> ir.Value:
        return op.ScatterND(past, indices, update, _outputs=["present"])

    def check(self, context: MatchContext, present: ir.Value, **_: object) -> bool:
        return Slots(self.dims).update(present) is not None

    def rewrite(self, op: OperatorMaker, past: ir.Value, present: ir.Value, **_: object) -> ir.Value | None:
        found = Slots(self.dims).update(present)
        target = None if found is None else self.target(op, found.target(known_sizes(past)[1]))
        if found is None or target is None:
            return None
        update = op.Transpose(op.Reshape(found.update, target), perm=[0, 2, 1, 3])
        start = () if isinstance(found.start, int) else (op.Cast(found.start, to=ir.DataType.INT64),)
        return op.TensorScatter(past, update, *start, axis=2, mode="linear")


def scatter_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rule for cache updates."""
    return [RuleSet([TensorScatter(dims)])]
