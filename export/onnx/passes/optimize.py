"""The optimizer of ONNX graphs: fused operators instead of the converter's primitive ones."""

from collections.abc import Collection

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import version_converter

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.naming import name_parts
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.empty import allow_empty
from keras_transformer.export.onnx.passes.shapes.sizes import replace_sizes
from keras_transformer.export.onnx.passes.simplify import simplify
from keras_transformer.export.onnx.rewrites import rule_sets

_ROUNDS = 12


def optimize(model: ir.Model, options: OnnxOptions, weights: Collection[str] = ()) -> None:
    """Rewrites a graph into fused operators, in place.

    Args:
        model: `onnx_ir.Model` of opset 18, with its weights as initializers, which stay lazy where they are.
        options: `OnnxOptions`.
        weights: names of the initializers that are weights of the model; nodes are named after their layers.
    """
    interface = [*model.graph.inputs, *model.graph.outputs]
    types = [(value.type, None if value.shape is None else value.shape.copy()) for value in interface]
    _rewrite(model, options)
    name_parts(model.graph, weights)
    for value, (kind, shape) in zip((*model.graph.inputs, *model.graph.outputs), types, strict=True):
        value.type, value.shape = kind, shape  # With the axis names of the signature.
    standard = onnx.helper.make_opsetid("", model.opset_imports[""])
    model.ir_version = max(model.ir_version, onnx.helper.find_min_ir_version_for([standard]))


def _rewrite(model: ir.Model, options: OnnxOptions) -> None:
    if options.target != model.opset_imports[""]:
        version_converter.convert_version(model, options.target, fallback=False)
    simplify(model)
    dims = Dims()
    rules, last_rules = rule_sets(dims, options)
    for _ in range(_ROUNDS):
        common.ShapeInferencePass()(model)
        dims.infer(model.graph)
        count = replace_sizes(model.graph, dims)
        # Unused readers of sizes would prevent rules, whose intermediate values may have no other consumers.
        common.RemoveUnusedNodesPass()(model)
        count += sum(each.apply(model) for each in rules)
        if not count and not sum(each.apply(model) for each in last_rules):
            break
        simplify(model)
    if allow_empty(model.graph, dims):
        simplify(model)
    common.RemoveUnusedOpsetsPass()(model)
