"""From the graph that the converter wrote to the one that a runtime executes best."""

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, version_converter

from keras_transformer.export.onnx.naming import name_parts, tell_apart
from keras_transformer.export.onnx.rewrites import rule_sets
from keras_transformer.export.onnx.shapes.dims import Dims
from keras_transformer.export.onnx.shapes.sizes import settle_sizes

_ROUNDS = 12
_FOLD_BYTES = 4096


def optimize_proto(model, arrays, options):
    """Rewrites a graph into fused operators.

    Args:
        model: `onnx.ModelProto` of opset 18 without its weights; left as it is.
        arrays: dict of name to numpy array: the weights.
        options: `OnnxOptions`.

    Returns:
        `(model, arrays)`: an `onnx.ModelProto`, and the weights that it reads.
    """
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model)
    skeleton.graph.initializer.extend(_placeholder(name, array) for name, array in arrays.items())
    rewritten = ir.from_proto(skeleton)
    initializers = rewritten.graph.initializers
    for name, array in arrays.items():
        initializers[name].const_value = ir.tensor(array, name=name)
    optimize(rewritten, options)
    name_parts(rewritten.graph, arrays)
    found = {name: value.const_value.numpy() for name, value in initializers.items()}
    initializers.clear()
    proto = ir.to_proto(rewritten)
    standard = [each for each in proto.opset_import if not each.domain]
    proto.ir_version = max(proto.ir_version, onnx.helper.find_min_ir_version_for(standard))
    for side in ("input", "output"):  # The names of their axes are the signature's.
        for value, original in zip(getattr(proto.graph, side), getattr(model.graph, side), strict=True):
            value.type.CopyFrom(original.type)
    del proto.graph.value_info[:]
    return proto, found


def _placeholder(name, array):
    """An initializer whose numbers are elsewhere."""
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.external_data.add(key="location", value="elsewhere")
    return tensor


def optimize(model, options):
    """Rewrites a graph into fused operators, in place.

    Args:
        model: `onnx_ir.Model` of opset 18, with its weights as initializers.
        options: `OnnxOptions`.

    Returns:
        The model.
    """
    if options.target != model.opset_imports[""]:
        version_converter.convert_version(model, options.target, fallback=False)
    _clean(model)
    for _ in range(_ROUNDS):
        common.ShapeInferencePass()(model)
        dims = Dims(model.graph)
        count = settle_sizes(model.graph, dims)
        # What only sizes were read from would seem to be needed outside of what a rule replaces.
        common.RemoveUnusedNodesPass()(model)
        if not count + sum(rules.apply_to_model(model) for rules in rule_sets(dims, options)):
            break
        _clean(model)
    common.RemoveUnusedOpsetsPass()(model)
    return model


def _clean(model):
    optimizer.fold_constants(model, input_size_limit=_FOLD_BYTES, output_size_limit=_FOLD_BYTES)
    for each in (
        common.IdentityEliminationPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
    ):
        each(model)
    _tidy(model, model.graph)
    common.RemoveUnusedNodesPass()(model)
    tell_apart(model.graph)  # Rules number what they make in each graph anew.


def _tidy(model, graph):
    """Computes what is computed twice once, and drops constants that nothing reads, in each body too: the library's passes
    look at the top alone."""
    common.CommonSubexpressionEliminationPass()(ir.Model(graph, ir_version=model.ir_version))
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _tidy(model, attribute.as_graph())
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            graph.initializers.pop(name)
