"""Core ML programs: each operator of ONNX, read from the written file, computes what ONNX Runtime does."""

import importlib.util

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.targets import get_target

needs_coremltools = pytest.mark.skipif(importlib.util.find_spec("coremltools") is None, reason="no coremltools")
RNG = np.random.default_rng(5)
INPUTS = {
    "x": RNG.standard_normal((2, 3, 4)).astype("float32"),
    "z": RNG.standard_normal((2, 3, 4)).astype("float32"),
    "ids": np.array([[2, 0], [1, 1]], "int32"),
    "mask": np.array([[[[True, True, False]] * 3], [[[True, False, True]] * 3]]),
    "q": RNG.standard_normal((2, 4, 3, 2)).astype("float32"),
    "k": RNG.standard_normal((2, 2, 3, 2)).astype("float32"),
    "image": RNG.standard_normal((1, 4, 5, 6)).astype("float32"),
}
CONSTANTS = {
    "scale": RNG.standard_normal(4).astype("float32"),
    "kernel": RNG.standard_normal((6, 2, 3, 2)).astype("float32"),
    "angles": RNG.standard_normal((2, 3, 1)).astype("float32"),
    "bias": RNG.standard_normal(6).astype("float32"),
    "last": np.array([-1]),
    "two": np.array([2]),
    "axis": np.array(1),
    "shape": np.array([0, -1]),
    "wide": np.array([2, 3, 2, 4]),
    "one": np.array([1]),
    "three": np.array([3]),
    "sizes": np.array([1, 3]),
    "sides": np.array([0, 1, 0, 0, 0, 2]),
    "places": np.array([[[0, 2], [1, 0]]]),
    "rows": RNG.standard_normal((1, 2, 4)).astype("float32"),
    "last_rows": np.array([[-1], [0]]),
    "floor": np.array(-0.5, "float32"),
    "divisor": np.array(2, "int32"),
    "pairs": np.array([[1, 0], [0, 2]]),
    "low": np.array(-(2**62)),
}


def case(op, *inputs, outputs=1, **options):
    return op, inputs, outputs, options


CASES = {
    "arithmetic": case("Div", "x", "z"),
    "integers": case("Div", "ids", "divisor"),
    "gelu": case("Gelu", "x"),
    "gelu_tanh": case("Gelu", "x", approximate="tanh"),
    "softmax": case("Softmax", "x", axis=1),
    "log_softmax": case("LogSoftmax", "x", axis=-1),
    "layer_norm": case("LayerNormalization", "x", "scale", "scale", axis=-1, epsilon=1e-3),
    "rms_norm": case("RMSNormalization", "x", "scale", axis=-1, epsilon=1e-3),
    "attention": case("Attention", "q", "k", "k", "mask", scale=0.3),
    "attention_causal": case("Attention", "x", "x", "x", q_num_heads=2, kv_num_heads=2, is_causal=1, softcap=0.7),
    "rotary": case("RotaryEmbedding", "q", "angles", "angles"),
    "rotary_pairs": case("RotaryEmbedding", "x", "angles", "angles", num_heads=2, interleaved=1),
    "gemm": case("Gemm", "ids_float", "ids_float", "one_float", transB=1, alpha=0.5, beta=2.0),
    "conv": case("Conv", "image", "kernel", "bias", group=2, strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2]),
    "reshape": case("Reshape", "x", "shape"),
    "unsqueeze": case("Unsqueeze", "x", "last"),
    "expand": case("Expand", "k_row", "wide"),
    "transpose": case("Transpose", "x", perm=[2, 0, 1]),
    "slice": case("Slice", "x", "one", "three", "two", "one"),
    "reversed": case("Slice", "x", "last", "low_list", "one", "minus"),
    "split": case("Split", "x", "sizes", outputs=2, axis=2),
    "split_count": case("Split", "x", outputs=2, axis=1, num_outputs=2),
    "pad": case("Pad", "x", "sides", "floor"),
    "gather": case("Gather", "x", "last_rows", axis=1),
    "gather_ids": case("Gather", "x", "ids", axis=2),
    "gather_nd": case("GatherND", "x", "pairs"),
    "scatter_nd": case("ScatterND", "x", "places", "rows"),
    "cumsum": case("CumSum", "x", "axis", exclusive=1),
    "topk": case("TopK", "x", "two", outputs=2, axis=2),
    "sum": case("ReduceSum", "x", "one", keepdims=0),
    "mean": case("ReduceMean", "x", "last"),
    "pool": case("GlobalAveragePool", "image"),
    "clip": case("Clip", "x", "floor"),
    "choice": case("Where", "positive", "x", "floor"),
    "compared": case("Not", "positive"),
    "power": case("Pow", "square", "z"),
    "reciprocal": case("Reciprocal", "x"),
    "silu": case("Mul", "x", "sigmoid"),
    "filled": case("ConstantOfShape", "sizes", value=numpy_helper.from_array(np.array([7], "int32"))),
}
MADE = [
    helper.make_node("Cast", ["ids"], ["ids_float"], to=TensorProto.FLOAT),
    helper.make_node("Cast", ["one"], ["one_float"], to=TensorProto.FLOAT),
    helper.make_node("Greater", ["x", "z"], ["positive"]),
    helper.make_node("Mul", ["x", "x"], ["square"]),
    helper.make_node("Sigmoid", ["x"], ["sigmoid"]),
    helper.make_node("Unsqueeze", ["rows", "one"], ["k_row"]),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """The path of one ONNX file with a node of each case."""
    nodes, names = list(MADE), []
    for name, (op, inputs, count, options) in CASES.items():
        made = [f"{name}_{number}" for number in range(count)]
        nodes.append(helper.make_node(op, inputs, made, **options))
        names += made
    constants = CONSTANTS | {"low_list": CONSTANTS["low"].reshape(1), "minus": np.array([-1])}
    kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}
    given = [helper.make_tensor_value_info(key, kinds[str(each.dtype)], each.shape) for key, each in INPUTS.items()]
    made = helper.make_graph(nodes, "graph", given, [onnx.ValueInfoProto(name=name) for name in names])
    made.initializer.extend(numpy_helper.from_array(each, key) for key, each in constants.items())
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    path = tmp_path_factory.mktemp("coreml") / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def expected(graph):
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, INPUTS), strict=True))


@pytest.fixture(scope="module", params=[None, "fp16"])
def computed(request, graph, tmp_path_factory):
    package = tmp_path_factory.mktemp("package") / "model.mlpackage"
    target = get_target("coreml")
    assert target.compile(graph, "serve", package, request.param)
    assert (package / "Data" / "com.apple.CoreML" / "weights" / "weight.bin").is_file()
    return request.param, target.run(package, "serve", [INPUTS], request.param).outputs[0]


@needs_coremltools
@pytest.mark.parametrize("name", CASES)
def test_operators_compute_what_onnx_runtime_does(name, expected, computed):
    precision, found = computed
    tolerance = 2e-6 if precision is None else 4e-3
    for key in [each for each in expected if each.rpartition("_")[0] == name]:
        wanted = expected[key].astype("float64")
        scale = np.abs(wanted).max()
        assert found[key].shape == wanted.shape
        np.testing.assert_allclose(found[key], wanted, rtol=0, atol=tolerance * scale)


def test_operators_without_a_counterpart_are_found(graph, tmp_path):
    model = onnx.load(graph)
    model.graph.node.append(helper.make_node("Det", ["square"], ["d"], name="block_0/det"))
    onnx.save(model, tmp_path / "model.onnx")
    (found,) = get_target("coreml").check(tmp_path / "model.onnx", "serve")
    assert (found.op, found.name, found.reason) == ("Det", "block_0/det", "operation not supported")
    assert get_target("coreml").check(graph, "serve") == []


@needs_coremltools
def test_what_core_ml_has_not_is_an_error_that_names_it(graph, tmp_path):
    model = onnx.load(graph)
    node = next(each for each in model.graph.node if each.op_type == "Pad")
    node.name = "block_0/pad"
    node.attribute.append(helper.make_attribute("mode", "reflect"))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(NotImplementedError, match="Pad 'block_0/pad': Pad that repeats"):
        get_target("coreml").compile(tmp_path / "model.onnx", "serve", tmp_path / "p.mlpackage", None)


@needs_coremltools
def test_integers_are_numbers_of_32_bits_in_16(tmp_path):
    """Sums up to 5001 and their sines: the nearest number of 16 bits to 5001 is 5000."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    counted (int32[1, 3] ids, float[1, 3] x) => (int32[1, 3] sums, float[1, 3] sines, float[1, 3] y)
    <int64 axis = {1}, float rate = {0.37}, float scale = {1.5}> {
      sums = CumSum (ids, axis)
      numbers = Cast <to = 1> (sums)
      angles = Mul (numbers, rate)
      sines = Sin (angles)
      both = Add (sines, x)
      y = Mul (both, scale)
    }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    package, x = tmp_path / "model.mlpackage", np.array([[1, 2, 3]], "float32")
    target = get_target("coreml")
    assert target.compile(tmp_path / "model.onnx", "serve", package, "fp16")
    (found,) = target.run(package, "serve", [{"ids": np.array([[1001, 2000, 2000]], "int32"), "x": x}], "fp16").outputs
    np.testing.assert_array_equal(found["sums"], [[1001, 3001, 5001]])
    sines = np.sin(np.array([1001, 3001, 5001]) * 0.37)
    np.testing.assert_allclose(found["sines"], [sines], atol=2e-3)
    np.testing.assert_allclose(found["y"], 1.5 * (sines + x), atol=4e-3)
    assert np.abs(found["y"] - 1.5 * (sines + x)).max() > 1e-5  # The rest is in 16 bits.
