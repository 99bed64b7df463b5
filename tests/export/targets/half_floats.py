"""Small ONNX graphs, computed by ONNX Runtime in float32, or with every tensor rounded to fp16."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.delegates.rewrite import rewrite

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def graph(nodes, inputs, outputs, constants):
    """A model without its constants, and the constants.

    Args:
        nodes: list of `(op, inputs, output)`, or with a dict of attributes as well.
        inputs: dict of name to shape.
        outputs: dict of name to type.
        constants: dict of name to array.
    """
    made = [
        helper.make_node(op, list(given), [result], f"model/{result}", **dict(*more))
        for op, given, result, *more in nodes
    ]
    model = helper.make_model(
        helper.make_graph(
            made,
            "g",
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        ),
        opset_imports=[helper.make_opsetid("", 23)],
        ir_version=10,
    )
    return model, dict(constants)


def rewritten(target, model, arrays, slots=None):
    """The model and its constants after the rewrites of a target."""
    changed = ir.from_proto(_whole(model, arrays))
    rewrite(target, changed, slots)
    after = ir.to_proto(changed)
    found = {each.name: numpy_helper.to_array(each) for each in after.graph.initializer}
    del after.graph.initializer[:], after.graph.value_info[:]
    return after, found


def _whole(model, arrays):
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    whole.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    return whole


def run(model, arrays, inputs, half=False):
    """Dict of output name to array, in float32 or with every float tensor rounded to fp16."""
    whole = _whole(model, arrays)
    if half:
        whole = _rounded(onnx.shape_inference.infer_shapes(whole))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # The optimizer removes pairs of casts.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _rounded(model):
    """The model with a cast to fp16 and back behind every float tensor."""
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    floats = {each.name for each in values if each.type.tensor_type.elem_type == FLOAT}
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT:
            with np.errstate(over="ignore"):
                array = numpy_helper.to_array(tensor).astype("float16").astype("float32")
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    renamed, nodes = {}, []

    def round_to(source, name):
        nodes.append(helper.make_node("Cast", [source], [f"{name}/fp16"], to=HALF))
        nodes.append(helper.make_node("Cast", [f"{name}/fp16"], [name], to=FLOAT))

    for value in model.graph.input:
        if value.name in floats:
            renamed[value.name] = f"{value.name}/in"
            round_to(value.name, renamed[value.name])
    for node in model.graph.node:
        outputs = list(node.output)
        inputs = [renamed.get(name, name) for name in node.input]
        del node.input[:], node.output[:]
        node.input.extend(inputs)
        node.output.extend(f"{name}/exact" if name in floats else name for name in outputs)
        nodes.append(node)
        for name in outputs:
            if name in floats:
                round_to(f"{name}/exact", name)
    del model.graph.value_info[:], model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
