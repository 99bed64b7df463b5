"""Static rules: hand-made violations are found, each with its reason; nothing else is."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tflite_graphs import Built, cache_update

from keras_transformer.export.targets import get_target
from keras_transformer.export.targets.browser import placements
from keras_transformer.export.targets.microcontrollers.edge_tpu import edge_tpu_problems
from keras_transformer.export.targets.onnx_rules import onnx_problems
from keras_transformer.export.targets.qnn import OPERATORS, unquantized_results
from keras_transformer.export.targets.tflite_rules import gpu_problems


def sound():
    built = Built(x=("FLOAT32", (1, 4, 8)), z=("FLOAT32", (1, 4, 8)))
    return built.finish(y=built.add("ADD", ("x", "z"), "FLOAT32", (1, 4, 8), "Add"))


def rank_5():
    built = Built(x=("FLOAT32", (1, 2, 2, 2, 8)))
    return built.finish(y=built.add("ADD", ("x", "x"), "FLOAT32", (1, 2, 2, 2, 8), "Add"))


def dynamic():
    built = Built(x=("FLOAT32", (None, 8)))
    return built.finish(y=built.add("ADD", ("x", "x"), "FLOAT32", (None, 8), "Add"))


def long_integers():
    built = Built(x=("INT64", (1, 4)))
    return built.finish(y=built.add("ADD", ("x", "x"), "INT64", (1, 4), "Add"))


def computed_size():
    built = Built(x=("FLOAT32", (2, 3)), shape=("INT32", (1,)))
    return built.finish(y=built.add("RESHAPE", ("x", "shape"), "FLOAT32", (6,), "Reshape"))


def reversed_slice():
    built = Built(x=("FLOAT32", (4,)))
    bounds = [built.constant(np.array(each, "int32")) for each in ([3], [0], [-1])]
    return built.finish(y=built.add("STRIDED_SLICE", ("x", *bounds), "FLOAT32", (3,), "StridedSlice"))


def shrunk_slice():
    built = Built(x=("FLOAT32", (4, 2)))
    bounds = [built.constant(np.array(each, "int32")) for each in ([1, 0], [2, 2], [1, 1])]
    found = built.add("STRIDED_SLICE", ("x", *bounds), "FLOAT32", (2,), "StridedSlice", shrinkAxisMask=1)
    return built.finish(y=found)


def matrix_of_indices():
    built = Built(ids=("INT32", (1, 3)))
    table = built.constant(np.ones((5, 2), "float32"))
    return built.finish(y=built.add("GATHER", (table, "ids"), "FLOAT32", (1, 3, 2), "Gather"))


def integer_sum():
    built = Built(x=("INT32", (4,)))
    axis = built.constant(np.array([0], "int32"))
    return built.finish(y=built.add("CUMSUM", ("x", axis), "INT32", (4,), "Cumsum"))


def outer_sum():
    built = Built(x=("FLOAT32", (4, 2)))
    return built.finish(y=built.add("CUMSUM", ("x", built.constant(np.int32(-2))), "FLOAT32", (4, 2), "Cumsum"))


def twice():
    built = Built(x=("FLOAT32", (4,)))
    return built.finish(y=built.add("MAXIMUM", ("x", "x"), "FLOAT32", (4,)))


def constant():
    built = Built()
    return built.finish(y=built.add("NEG", (built.constant(np.ones(3, "float32")),), "FLOAT32", (3,)))


def largest(length, kind="FLOAT32"):
    built = Built(x=(kind, (1, length)))
    found = built.add("TOPK_V2", ("x", built.constant(np.int32(1))), kind, (1, 1), "TopKV2")
    return built.finish(y=found)


def padded(kind, *shape):
    built = Built(x=(kind, shape))
    sides = built.constant(np.array([[0, 1]] * len(shape), "int32"))
    return built.finish(y=built.add("PAD", ("x", sides), kind, [each + 1 for each in shape], "Pad"))


def one_hot():
    built = Built(x=("INT32", (2,)))
    rest = [built.constant(each) for each in (np.int32(3), np.array(True), np.array(False))]
    return built.finish(y=built.add("ONE_HOT", ("x", *rest), "BOOL", (2, 3), "OneHot"))


def broadcast_product():
    built = Built(x=("FLOAT32", (1, 2, 3, 4)), z=("FLOAT32", (1, 4, 5)))
    return built.finish(y=built.add("BATCH_MATMUL", ("x", "z"), "FLOAT32", (1, 2, 3, 5), "BatchMatMul"))


@pytest.mark.parametrize(
    ("make", "op", "reason"),
    [
        (outer_sum, "CUMSUM", "cumulative sums along the first axis are wrong"),
        (twice, "MAXIMUM", "reads a tensor twice"),
        (constant, "NEG", "all its inputs are constant"),
        (lambda: largest(6), "TOPK_V2", "the largest of rows whose length is no multiple of 4 are wrong"),
        (lambda: largest(4, "INT32"), "TOPK_V2", "the largest of other than floats"),
        (lambda: padded("FLOAT32", 2, 3), "PAD", "padding of vectors and matrices"),
        (lambda: padded("INT32", 1, 2, 3), "PAD", "padding of type int32"),
        (one_hot, "ONE_HOT", "one-hot rows of booleans"),
        (broadcast_product, "BATCH_MATMUL", "products of batches that are broadcast are wrong"),
        (rank_5, "ADD", "tensors of rank 5"),
        (dynamic, "ADD", "dynamic shapes"),
        (long_integers, "ADD", "type int64"),
        (computed_size, "RESHAPE", "its sizes are computed"),
        (reversed_slice, "STRIDED_SLICE", "slices from the end"),
        (shrunk_slice, "STRIDED_SLICE", "slices that add or remove axes"),
        (matrix_of_indices, "GATHER", "lookups by other than a list of indices"),
        (integer_sum, "CUMSUM", "cumulative sums of integers"),
    ],
)
def test_the_gpu_delegate_refuses(make, op, reason):
    (found,) = gpu_problems(make().graph)
    assert (found.op, found.reason) == (op, reason)
    assert found.name.startswith("block_0/")
    assert found.remedy


def test_the_gpu_delegate_takes_a_sound_graph():
    assert list(gpu_problems(sound().graph)) == []
    assert list(gpu_problems(largest(8).graph)) == []
    assert list(gpu_problems(padded("FLOAT32", 1, 2, 3).graph)) == []


def test_the_gpu_delegate_has_no_scatter_and_no_broadcast():
    found = [(each.op, each.reason) for each in gpu_problems(cache_update().graph)]
    assert found == [(op, "operation not supported") for op in ("BROADCAST_TO", "SCATTER_ND", "SCATTER_ND")]


def pooled(activation=0, kind="INT8", batch=1):
    built = Built(x=(kind, (batch, 4, 4, 2)))
    options = {"filterWidth": 2, "filterHeight": 2, "strideW": 2, "strideH": 2, "fusedActivationFunction": activation}
    return built.finish(y=built.add("MAX_POOL_2D", ("x",), kind, (batch, 2, 2, 2), "Pool2D", **options))


def reduced(axis, channels=2):
    built = Built(x=("INT8", (1, 4, channels)))
    return built.finish(
        y=built.add("MEAN", ("x", built.constant(np.array([axis], "int32"))), "INT8", (1, 2), "Reducer")
    )


def sliced(step):
    built = Built(x=("INT8", (1, 4)))
    bounds = [built.constant(np.array(each, "int32")) for each in ([0, 0], [1, 4], [1, step])]
    return built.finish(y=built.add("STRIDED_SLICE", ("x", *bounds), "INT8", (1, 4 // step), "StridedSlice"))


def widened(sides):
    built = Built(x=("INT8", (1, 2, 2)))
    shape = [size + sum(each) for size, each in zip((1, 2, 2), sides, strict=True)]
    return built.finish(y=built.add("PAD", ("x", built.constant(np.array(sides, "int32"))), "INT8", shape, "Pad"))


def probabilities(count, rows=1):
    built = Built(x=("INT8", (1, rows, count)))
    return built.finish(y=built.add("SOFTMAX", ("x",), "INT8", (1, rows, count), "Softmax"))


def dilated(height, width):
    built = Built(x=("INT8", (1, 8, 8, 2)))
    kernel, bias = built.constant(np.ones((1, 3, 3, 2), "int8")), built.constant(np.zeros(2, "int32"))
    options = {"strideW": 1, "strideH": 1, "dilationHFactor": height, "dilationWFactor": width, "depthMultiplier": 1}
    found = built.add("DEPTHWISE_CONV_2D", ("x", kernel, bias), "INT8", (1, 8, 8, 2), "DepthwiseConv2D", **options)
    return built.finish(y=found)


def joined(value):
    built = Built(x=("INT8", (1, 2)))
    constant = built.constant(np.array([value], "int8"))
    return built.finish(y=built.add("CONCATENATION", ("x", constant), "INT8", (1, 4), "Concatenation", axis=1))


def packed(axis):
    built = Built(x=("INT8", (1, 4)))
    shape = (2, 1, 4) if axis == 0 else (1, 2, 4)
    return built.finish(y=built.add("PACK", ("x", "x"), "INT8", shape, "Pack", axis=axis, valuesCount=2))


def plain(kind, op="NEG"):
    built = Built(x=(kind, (1, 4)))
    return built.finish(y=built.add(op, ("x",), kind, (1, 4)))


@pytest.mark.parametrize(
    ("built", "op", "reason"),
    [
        (plain("INT8"), "NEG", "operation not supported"),
        (plain("FLOAT32", "TANH"), "TANH", "type float32"),
        (pooled(activation=1), "MAX_POOL_2D", "a fused activation"),
        (pooled(batch=2), "MAX_POOL_2D", "tensors of more than three axes above 1"),
        (reduced(0), "MEAN", "reduction of the batch"),
        (reduced(-3), "MEAN", "reduction of the batch"),
        (sliced(2), "STRIDED_SLICE", "slices with steps or new axes"),
        (widened([[0, 1], [0, 0], [0, 0]]), "PAD", "padding of the batch"),
        (reduced(2, channels=6), "MEAN", "a mean of channels whose number is no multiple of 4"),
        (dilated(2, 1), "DEPTHWISE_CONV_2D", "dilations that differ"),
        (joined([0, 1]), "CONCATENATION", "a constant in a concatenation"),
        (packed(0), "PACK", "packing in the batch"),
        (probabilities(16_001), "SOFTMAX", "softmax of more than one row, or of more than 16,000 numbers"),
        (probabilities(4, rows=2), "SOFTMAX", "softmax of more than one row, or of more than 16,000 numbers"),
        (dynamic(), "ADD", "dynamic shapes"),
    ],
)
def test_the_edge_tpu_refuses(built, op, reason):
    (found,) = edge_tpu_problems(built.graph)
    assert (found.op, found.reason) == (op, reason)


@pytest.mark.parametrize(
    "built",
    [
        pooled(),
        pooled(kind="UINT8"),
        plain("INT8", "TANH"),
        reduced(1),
        sliced(1),
        widened([[0, 0], [1, 0], [0, 1]]),
        reduced(2, channels=8),
        dilated(2, 2),
        joined([0, 0]),
        packed(1),
        probabilities(16_000),
    ],
)
def test_the_edge_tpu_takes_integers(built):
    assert list(edge_tpu_problems(built.graph)) == []


def onnx_graph(*nodes, shape=(1, 4)):
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, shape), value("ids", TensorProto.INT64, (1, 2, 1))]
    graph = helper.make_graph(list(nodes), "graph", inputs, [value("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    return onnx.shape_inference.infer_shapes(model).graph


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (onnx_graph(helper.make_node("Gelu", ["x"], ["y"], name="a")), None),
        (onnx_graph(helper.make_node("Gelu", ["x"], ["y"], name="a"), shape=("batch", 4)), "dynamic shapes"),
        (onnx_graph(helper.make_node("Det", ["x"], ["y"], name="a"), shape=(4, 4)), "operation not supported"),
        (onnx_graph(helper.make_node("Gelu", ["x"], ["y"], name="a"), shape=(1,) * 6), "tensors of rank 6"),
        (
            onnx_graph(helper.make_node("GatherND", ["x", "ids"], ["y"], name="a", batch_dims=1), shape=(1, 4)),
            "a lookup in each row by its own indices",
        ),
    ],
)
def test_the_npu_refuses(graph, reason):
    found = list(onnx_problems(graph, OPERATORS, 5))
    assert [(each.name, each.reason) for each in found] == ([] if reason is None else [("a", reason)])


@pytest.mark.parametrize(("channels", "quantized", "count"), [(4, False, 1), (4, True, 0), (1, False, 0)])
def test_weights_of_many_scales_need_a_quantized_result(channels, quantized, count):
    scale = helper.make_tensor("scale", TensorProto.FLOAT, (channels,), [0.1] * channels)
    step = helper.make_tensor("step", TensorProto.FLOAT, (), [0.1])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["kernel"], name="dense/weights", axis=1),
        helper.make_node("MatMul", ["x", "kernel"], ["z"]),
        helper.make_node(*(("QuantizeLinear", ["z", "step"]) if quantized else ("Relu", ["z"])), ["y"]),
    ]
    graph = helper.make_graph(nodes, "graph", [], [], initializer=[scale, step])
    assert [each.name for each in unquantized_results(graph)] == ["dense/weights"] * count


def test_the_gpu_of_a_browser_has_no_long_integers_and_no_attention(tmp_path):
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Cast", ["ids"], ["long"], name="block_0/cast", to=TensorProto.INT64),
        helper.make_node("Add", ["long", "one"], ["next"], name="block_0/add"),
        helper.make_node("Gather", ["table", "next"], ["rows"], name="block_0/gather"),
        helper.make_node("Greater", ["rows", "rows"], ["more"], name="block_0/greater"),
        helper.make_node("Transpose", ["more"], ["mask"], name="block_0/mask"),
        helper.make_node("Reshape", ["rows", "shape"], ["x"], name="block_0/reshape"),
        helper.make_node("Attention", ["x", "x", "x"], ["y"], name="block_0/attention", q_num_heads=1, kv_num_heads=1),
        helper.make_node("Softmax", ["y"], ["z"], name="block_0/softmax"),
    ]
    constants = [
        helper.make_tensor("one", TensorProto.INT64, (), [1]),
        helper.make_tensor("shape", TensorProto.INT64, (3,), [1, 2, 4]),
        helper.make_tensor("table", TensorProto.FLOAT, (3, 4), [0.5] * 12),
    ]
    inputs, outputs = [value("ids", TensorProto.INT32, (2,))], [value("z", TensorProto.FLOAT, (1, 2, 4))]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]), tmp_path / "model.onnx")
    found = {each.name: each.reason for each in get_target("webgpu").check(tmp_path / "model.onnx", "serve")}
    assert found == {
        "block_0/add": "type int64",
        "block_0/mask": "type bool",
        "block_0/attention": "operation not supported",
    }


def test_the_provider_of_each_node_is_read_from_the_log():
    head = "[V:onnxruntime:,session_state.cc:1263 VerifyEachNodeIsAssignedToAnEp] "
    said = [
        f"{head} Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 2",
        f"{head}   MatMul (block_0/query/MatMul:0)",
        f"{head}   Softmax (softmax)",
        f"{head} Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2\n{head}   Cast ()",
        "[I:onnxruntime:] Session successfully initialized.",
    ]
    assert placements(said) == {"WebGpuExecutionProvider": ["MatMul", "Softmax"], "CPUExecutionProvider": ["Cast", "?"]}
    assert placements([f"{head} All nodes placed on [WebGpuExecutionProvider]. Number of nodes: 3"]) == {
        "WebGpuExecutionProvider": ["?"] * 3
    }
