"""Cost of exported files, from the shapes recorded in a run of each file in its runtime."""

import json
import math
import pathlib
import tempfile

import onnx

from graph_cost import Cost
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import read
from keras_transformer.planning.graph.multiply_adds import einsum_multiply_adds

_ONNX_VIEWS = {"Constant", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Shape", "Loop", "If", "Scan"}
_TFLITE_VIEWS = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SHAPE", "RANK", "WHILE", "IF"}
_REDUCTIONS = {"SUM", "MEAN", "MAX", "MIN", "PROD", "ANY", "ALL"}


def onnx_cost(path, inputs):
    """Returns the `Cost` of an ONNX file for inputs, a dict of name to array. Loops count once per iteration."""
    model = onnx.load(str(path))
    nodes = {node.name: node for node in _nodes(model.graph)}
    constants = {each.name: tuple(each.dims) for each in model.graph.initializer}
    constants |= {
        node.output[0]: tuple(node.attribute[0].t.dims) for node in nodes.values() if node.op_type == "Constant"
    }
    cost = Cost(nodes=len(nodes))
    for event in _profile(path, inputs):
        node = nodes[event["name"].removesuffix("_kernel_time")]
        written = [_size(shape) for shape in _shapes(event["args"]["output_type_shape"])]
        cost.see(max(written, default=0), node.name)
        if node.op_type not in _ONNX_VIEWS:
            fed = iter(_shapes(event["args"]["input_type_shape"]))  # The profile omits weights and constants.
            read_shapes = [constants[name] if name in constants else next(fed, ()) for name in node.input if name]
            cost.flops += _onnx_flops(node, read_shapes, written)
    return cost


def _nodes(graph):
    """Yields the nodes of a graph and of the bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def _profile(path, inputs):
    """Returns one event per execution of a node."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as directory:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(pathlib.Path(directory, "profile"))
        # The nodes of the file, not optimized.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options)
        session.run(None, inputs)
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    return [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]


def _shapes(typed):
    """Converts `[{"float": [1, 2]}, ...]` to `[(1, 2), ...]`."""
    return [tuple(next(iter(each.values()))) for each in typed]


def _size(shape):
    return math.prod(map(int, shape))  # NumPy integers would overflow.


def _onnx_flops(node, read_shapes, written):
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type == "MatMul":
        return 2 * written[0] * read_shapes[0][-1]
    if node.op_type == "Gemm":
        return 2 * written[0] * read_shapes[0][0 if attributes.get("transA") else -1]
    if node.op_type == "Einsum":
        return 2 * einsum_multiply_adds(attributes["equation"].decode(), read_shapes)
    if node.op_type == "Conv":
        return 2 * written[0] * _size(read_shapes[1][1:])
    if node.op_type == "TopK":
        return _size(read_shapes[0]) * math.ceil(math.log2(max(2, read_shapes[0][-1])))
    if node.op_type.startswith("Reduce") or node.op_type == "ArgMax":
        return _size(read_shapes[0])
    return sum(written)


def tflite_cost(path, inputs):
    """Returns the `Cost` of a TFLite file for these inputs; `flops` is None if it has loops, whose trip count is unknown."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        str(path),
        experimental_preserve_all_tensors=True,
        # A delegate would hide its operations.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    model = read(pathlib.Path(path).read_bytes())
    arguments = {each.name.decode(): each.tensorIndex for each in model.signatureDefs[0].inputs}
    for name, index in arguments.items():
        interpreter.resize_tensor_input(index, inputs[name].shape)
    interpreter.allocate_tensors()
    for name, index in arguments.items():
        interpreter.set_tensor(index, inputs[name])
    interpreter.invoke()
    cost = Cost(nodes=sum(len(subgraph.operators) for subgraph in model.subgraphs))
    for index in range(len(model.subgraphs)):
        _add_subgraph(cost, model, interpreter, index)
    if len(model.subgraphs) > 1:
        cost.flops = None
    return cost


def _add_subgraph(cost, model, interpreter, index):
    graph = Graph(model, model.subgraphs[index])
    shapes = {each["index"]: tuple(map(int, each["shape"])) for each in interpreter.get_tensor_details(index)}
    for operator in graph.subgraph.operators:
        kind = graph.kind(operator)
        written = [_size(shapes[tensor]) for tensor in operator.outputs]
        cost.see(max(written, default=0), f"{kind} {graph.tensors[operator.outputs[0]].name.decode()}")
        if kind not in _TFLITE_VIEWS:
            read_shapes = [shapes[tensor] for tensor in operator.inputs if tensor >= 0]
            cost.flops += _tflite_flops(kind, operator, read_shapes, written)


def _tflite_flops(kind, operator, read_shapes, written):
    if kind == "FULLY_CONNECTED":
        return 2 * written[0] * read_shapes[1][-1]
    if kind == "BATCH_MATMUL":
        return 2 * written[0] * read_shapes[0][-2 if operator.builtinOptions.adjX else -1]
    if kind == "CONV_2D":
        return 2 * written[0] * _size(read_shapes[1][1:])
    if kind == "DEPTHWISE_CONV_2D":
        return 2 * written[0] * _size(read_shapes[1][1:3])
    if kind == "TOPK_V2":
        return _size(read_shapes[0]) * math.ceil(math.log2(max(2, read_shapes[0][-1])))
    if kind in _REDUCTIONS or kind.startswith("REDUCE_"):
        return _size(read_shapes[0])
    return sum(written)
