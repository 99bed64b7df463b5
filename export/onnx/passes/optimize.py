"""The optimizer of ONNX graphs: fused operators instead of the converter's primitive ones."""

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import version_converter

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.naming import name_parts
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.sizes import replace_sizes
from keras_transformer.export.onnx.passes.simplify import simplify
from keras_transformer.export.onnx.rewrites import rule_sets
from keras_transformer.export.onnx.weights.lazy_tensors import array_of, tensor_of
from keras_transformer.export.spec.lazy_array import AnyArray

_ROUNDS = 12


def optimize_proto(
    model: onnx.ModelProto, arrays: dict[str, AnyArray], options: OnnxOptions
) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """Rewrites a graph into fused operators.

    Args:
        model: `onnx.ModelProto` of opset 18 without its weights; not changed.
        arrays: dict of name to array: the weights.
        options: `OnnxOptions`.

    Returns:
        `(model, arrays)`: an `onnx.ModelProto`, and the weights that it reads, lazy where they were.
    """
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model)
    skeleton.graph.initializer.extend(_placeholder(name, array) for name, array in arrays.items())
    rewritten = ir.from_proto(skeleton)
    initializers = rewritten.graph.initializers
    for name, array in arrays.items():
        initializers[name].const_value = tensor_of(array, name)
    optimize(rewritten, options)
    name_parts(rewritten.graph, arrays)
    found = {name: array_of(value.const_value) for name, value in initializers.items() if value.const_value is not None}
    initializers.clear()
    proto = ir.to_proto(rewritten)
    standard = [each for each in proto.opset_import if not each.domain]
    proto.ir_version = max(proto.ir_version, onnx.helper.find_min_ir_version_for(standard))
    for side in ("input", "output"):  # With the axis names of the signature.
        for value, original in zip(getattr(proto.graph, side), getattr(model.graph, side), strict=True):
            value.type.CopyFrom(original.type)
    del proto.graph.value_info[:]
    return proto, found


def _placeholder(name: str, array: AnyArray) -> onnx.TensorProto:
    """An initializer without data."""
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.external_data.add(key="location", value="elsewhere")
    return tensor


def optimize(model: ir.Model, options: OnnxOptions) -> ir.Model:
    """Rewrites a graph into fused operators, in place.

    Args:
        model: `onnx_ir.Model` of opset 18, with its weights as initializers.
        options: `OnnxOptions`.

    Returns:
        The model.
    """
    if options.target != model.opset_imports[""]:
        version_converter.convert_version(model, options.target, fallback=False)
    simplify(model)
    dims = Dims()
    found = rule_sets(dims, options)
    for _ in range(_ROUNDS):
        common.ShapeInferencePass()(model)
        dims.infer(model.graph)
        count = replace_sizes(model.graph, dims)
        # Unused readers of sizes would prevent rules, whose intermediate values may have no other consumers.
        common.RemoveUnusedNodesPass()(model)
        if not count + sum(rules.apply(model) for rules in found):
            break
        simplify(model)
    common.RemoveUnusedOpsetsPass()(model)
    return model
