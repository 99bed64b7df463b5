"""Quantized ONNX graphs against float64 references, and errors of quantization."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.onnx.quantization.calibrate import ranges_of
from keras_transformer.export.onnx.quantization.quantize import quantize_files
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import (
    Float16,
    Int8,
    Int8Static,
    WeightInt4,
    WeightInt8,
)
from keras_transformer.export.quantization.precisions import precision_of
from keras_transformer.export.verification.quantized.evaluation import Evaluation, check_loss
from keras_transformer.export.verification.quantized.weights import check_quantized_weights

K, N, WORDS = 96, 64, 200
FILES = {"serve": "model.onnx"}


def weights():
    rng = np.random.default_rng(0)
    return {
        "table": rng.normal(0, 0.4, (WORDS, K)),
        "dense/kernel": rng.normal(0, 0.1, (K, N)),
        "turned/kernel": rng.normal(0, 0.1, (K, N)),
        "turned/bias": rng.normal(0, 1, K),
        "positions": rng.normal(0, 1, (32, K)),
    }


def write(directory):
    """ids -> embedding + positions -> dense -> `Gemm` with `transB` -> logits by the tied table."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Slice", ["positions", "zero", "four", "zero"], ["first"]),
        helper.make_node("Add", ["rows", "first"], ["x"]),
        helper.make_node("MatMul", ["x", "dense/kernel"], ["y"]),
        helper.make_node("Gemm", ["y", "turned/kernel", "turned/bias"], ["z"], transB=1),
        helper.make_node("Transpose", ["table"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["z", "columns"], ["logits"]),
    ]
    arrays = {name: array.astype("float32") for name, array in weights().items()}
    arrays |= {"zero": np.array([0]), "four": np.array([4])}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT32, [4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y", "logits")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(directory / FILES["serve"]))


def run(directory, ids):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(directory / FILES["serve"]), options).run(None, {"ids": ids})


def run_as_loaded(directory, ids):
    """In the session of `load`, whose static integers are exact on processors without VNNI too."""
    return onnx_session(str(directory / FILES["serve"]), num_threads=1).run(None, {"ids": ids})


def expected(ids, w, product):
    x = w["table"][ids] + w["positions"][:4]
    y = product(x, w["dense/kernel"])
    z = product(y, w["turned/kernel"].T) + w["turned/bias"]
    return x, y, z @ w["table"].T


def rounded_by_block(array, bits, block):
    codes, scale = block_quantize.by_block(array, bits, block)
    scale = scale.astype("float16" if bits == 4 else "float32").astype("float64")
    return ((codes.astype("float64") - 2 ** (bits - 1)) * scale[..., None]).reshape(len(array), -1)[:, : array.shape[1]]


def rounded_by_channel(array):
    q, scale = block_quantize.by_channel(array)
    return q * scale.astype("float64")


def rounded_rows(array):
    """A weight that is not used in a matrix product: one scale per row."""
    return rounded_by_channel(array.T).T


def product_by_row(x, weight):
    """Activations in 8 bits, one scale for each row."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / 127
    return (np.round(x / scale) * scale) @ weight


def rounded_with_offset(array, block):
    codes, scale, offset = (each.astype("float64") for each in block_quantize.by_offset_block(array, block))
    return ((codes - 8) * scale[..., None] + offset[..., None]).reshape(len(array), -1)[:, : array.shape[1]]


IDS = np.array([3, 0, 199, 57], "int32")


@pytest.mark.parametrize(("mode", "bits", "block"), [("weight_int8", 8, 32), ("weight_int4", 4, 32)])
def test_weights_alone_give_the_products_of_the_rounded_weights(tmp_path, mode, bits, block):
    write(tmp_path)
    quantize_files(tmp_path, FILES, precision_of(mode), contrib_ops=False)
    w = weights()
    rounded = {
        "table": rounded_by_block(w["table"], 8, 32),
        "dense/kernel": rounded_with_offset(w["dense/kernel"].T, block).T,
        "turned/kernel": rounded_with_offset(w["turned/kernel"], block),
        "turned/bias": w["turned/bias"],
        "positions": rounded_rows(w["positions"]),
    }
    if bits == 8:
        rounded["dense/kernel"] = rounded_by_block(w["dense/kernel"].T, bits, 32).T
        rounded["turned/kernel"] = rounded_by_block(w["turned/kernel"], bits, 32)
    for got, want in zip(run(tmp_path, IDS), expected(IDS, rounded, np.matmul), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("contrib_ops", [True, False])
@pytest.mark.parametrize("mode", ["int8", "weight_int8", "weight_int4"])
def test_kernels_of_experts_are_looked_up_as_whole_numbers(tmp_path, mode, contrib_ops):
    """Those of the given experts alone become floats, and the check of weights knows all of them."""
    rng = np.random.default_rng(0)
    kernel, x = (rng.normal(size=shape).astype("float32") for shape in ((5, 40, 24), (2, 3, 40)))
    nodes = [
        helper.make_node("Gather", ["experts/kernel", "ids"], ["chosen"]),
        helper.make_node("MatMul", ["x", "chosen"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 40]),
        helper.make_tensor_value_info("ids", TensorProto.INT32, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(kernel, "experts/kernel")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for folder in ("float", "small"):
        (tmp_path / folder).mkdir()
        onnx.save(model, str(tmp_path / folder / FILES["serve"]))
    quantize_files(tmp_path / "small", FILES, precision_of(mode), contrib_ops=contrib_ops)
    rows = kernel.reshape(5, -1)
    rounded = rounded_with_offset(rows, 32) if mode == "weight_int4" else rounded_by_block(rows, 8, 32)
    wanted = x @ rounded.reshape(kernel.shape)[[3, 0]]
    session = onnxruntime.InferenceSession(str(tmp_path / "small" / FILES["serve"]))
    (found,) = session.run(None, {"x": x, "ids": np.array([3, 0], "int32")})
    np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())
    small = onnx.load(str(tmp_path / "small" / FILES["serve"]))
    assert all(
        np.prod(each.dims) < kernel.size for each in small.graph.initializer if each.data_type == TensorProto.FLOAT
    )
    assert "DequantizeLinear" not in {node.op_type for node in small.graph.node}
    record = check_quantized_weights("onnx", tmp_path / "float", tmp_path / "small", FILES)
    assert (record["equal"], record["unaccounted"]) == (0, [])


def test_kernels_of_the_runtime_give_nearly_that(tmp_path):
    """The kernels quantize activations too: close to the products with rounded weights, but not equal."""
    write(tmp_path)
    float_logits = run(tmp_path, IDS)[2]
    quantize_files(tmp_path, FILES, WeightInt8())
    logits = run(tmp_path, IDS)[2]
    assert 0 < np.abs(logits - float_logits).max() < 0.05 * np.abs(float_logits).max()
    assert count(tmp_path, "MatMulNBits") == 3


def test_int8_has_a_scale_for_each_row_of_activations(tmp_path):
    write(tmp_path)
    quantize_files(tmp_path, FILES, Int8(), contrib_ops=False)
    w = weights()
    rounded = {
        "table": rounded_by_block(w["table"], 8, 32),
        "dense/kernel": rounded_by_channel(w["dense/kernel"]),
        "turned/kernel": rounded_by_channel(w["turned/kernel"].T).T,
        "turned/bias": w["turned/bias"],
        "positions": rounded_rows(w["positions"]),
    }
    for got, want in zip(run(tmp_path, IDS), expected(IDS, rounded, product_by_row), strict=True):
        # Values halfway between two codes may be rounded either way.
        np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max())
    assert count(tmp_path, "MatMulInteger") == 2


@pytest.mark.parametrize("contrib_ops", [False, True])
def test_products_of_the_largest_codes_are_exact(tmp_path, contrib_ops):
    """Processors without VNNI add two products of uint8 and int8 in 16 bits: 2 * 255 * 127 does not fit."""
    signs = np.where(np.arange(N) % 2, -1.0, 1.0)
    kernel = np.ones((K, N)) * signs
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["ids", "kernel"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.FLOAT, [40, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [40, N])],
        [numpy_helper.from_array(kernel.astype("float32"), "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / FILES["serve"]))
    quantize_files(tmp_path, FILES, Int8(), contrib_ops=contrib_ops)
    x = np.where(np.arange(40)[:, None] % 3, 0.25, -3.0) * np.ones((40, K))
    np.testing.assert_allclose(run(tmp_path, x.astype("float32"))[0], x @ kernel, rtol=1e-5)


def test_a_loop_multiplies_whole_numbers_too(tmp_path):
    """Five iterations of `x -> x W` with W outside the loop equal five products with the rounded weight."""
    rng = np.random.default_rng(3)
    weight = rng.normal(0, 0.12, (K, K))
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "loop/kernel"], ["next"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [4, K]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [4, K]),
        ],
    )
    arrays = {"loop/kernel": weight.astype("float32"), "count": np.array(5), "yes": np.array(True)}
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "yes", "ids"], ["y"], body=body)],
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.FLOAT, [4, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, K])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / FILES["serve"]))
    quantize_files(tmp_path, FILES, Int8())
    assert "loop/kernel" not in initializers(tmp_path)
    x = rng.normal(size=(4, K)).astype("float32")
    want = x.astype("float64")
    for _ in range(5):
        # `MatMulNBits` quantizes activations by block.
        blocks = zip(np.split(want, K // 32, axis=1), np.split(rounded_by_channel(weight), K // 32), strict=True)
        want = sum(product_by_row(*each) for each in blocks)
    np.testing.assert_allclose(run(tmp_path, x)[0], want, atol=5e-3 * np.abs(want).max())


def test_half_precision_keeps_half_the_bytes(tmp_path):
    write(tmp_path)
    before = (tmp_path / "model.onnx").stat().st_size
    quantize_files(tmp_path, FILES, Float16())
    assert (tmp_path / "model.onnx").stat().st_size < 0.52 * before
    halves = {
        name: array.astype("float16").astype("float64") if array.ndim == 2 else array
        for name, array in weights().items()
    }
    for got, want in zip(run(tmp_path, IDS), expected(IDS, halves, np.matmul), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max())


def test_static_ranges_are_those_of_the_calibration_data(tmp_path):
    write(tmp_path)
    calibration = [{"ids": IDS}, {"ids": IDS[::-1].copy()}]
    ranges = ranges_of(tmp_path, FILES, calibration)
    x = np.stack([weights()["table"][ids["ids"]] + weights()["positions"][:4] for ids in calibration])
    np.testing.assert_allclose(ranges["x"], (x.min(), x.max()), rtol=2e-2)
    float_logits = run(tmp_path, IDS)[2]
    quantize_files(tmp_path, FILES, Int8Static(calibration), ranges=ranges)
    logits = run(tmp_path, IDS)[2]
    assert 0 < np.abs(logits - float_logits).max() < 0.05 * np.abs(float_logits).max()
    with pytest.raises(QuantizationError, match="do not fit"):
        ranges_of(tmp_path, FILES, [{"words": IDS}])


def test_static_results_are_integers_where_an_accelerator_needs_them(tmp_path):
    write(tmp_path)
    calibration = [{"ids": IDS}]
    plain, ranges = ranges_of(tmp_path, FILES, calibration), ranges_of(tmp_path, FILES, calibration, of_results=True)
    results = {name: bounds for name, bounds in ranges.items() if name.endswith("/result")}
    assert {name: ranges[name] for name in plain} == plain
    logits = run(tmp_path, IDS)[2]
    (tmp_path / "float").mkdir()
    shutil.copy(tmp_path / FILES["serve"], tmp_path / "float")
    quantize_files(tmp_path, FILES, Int8Static(calibration), ranges=ranges)
    assert check_quantized_weights("onnx", tmp_path / "float", tmp_path, FILES)["unaccounted"] == []
    nodes = onnx.load(str(tmp_path / FILES["serve"])).graph.node
    products = [node.output[0] for node in nodes if node.op_type == "MatMul"]
    assert len(products) == 3
    (lookup,) = [node for node in nodes if node.op_type == "Gather"]
    (stored,) = [node.input[0] for node in nodes if node.output[0] == lookup.input[0]]
    table = weights()["table"].astype("float32")
    np.testing.assert_array_equal(initializers(tmp_path)[stored], table.astype("float16"))
    assert initializers(tmp_path)["positions"].dtype == np.float32
    assert set(products) <= {node.input[0] for node in nodes if node.op_type == "QuantizeLinear"}
    assert len(results) == 3
    assert 0 < np.abs(run_as_loaded(tmp_path, IDS)[2] - logits).max() < 0.05 * np.abs(logits).max()


def convolution(directory, rng):
    """A file with a GELU of a convolution of 5 channels to 70 with a bias, and its weights; "ids" are images."""
    arrays = {"conv/kernel": rng.normal(size=(70, 5, 3, 3)), "conv/bias": rng.normal(size=70)}
    arrays = {name: array.astype("float32") for name, array in arrays.items()}
    node = helper.make_node("Conv", ["ids", *arrays], ["c"], "conv", strides=[2, 2], pads=[0, 0, 1, 1])
    image, result = [1, 5, 6, 6], [1, 70, 3, 3]
    graph = helper.make_graph(
        [node, helper.make_node("Gelu", ["c"], ["y"], "gelu", approximate="tanh")],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, result) for name in ("y", "c")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(directory / FILES["serve"]))
    return arrays


def test_static_convolutions_and_functions_are_of_integers_where_an_accelerator_needs_them(tmp_path):
    rng = np.random.default_rng(5)
    arrays, x = convolution(tmp_path, rng), rng.uniform(-1, 2, (1, 5, 6, 6)).astype("float32")
    ranges = ranges_of(tmp_path, FILES, [{"ids": x}], "minmax", of_results=True)
    before = [array.astype("float64") for array in run(tmp_path, x)]
    product = before[1] - arrays["conv/bias"].reshape(-1, 1, 1)
    np.testing.assert_allclose(ranges["ids"], (x.min(), x.max()), rtol=1e-6)
    np.testing.assert_allclose(ranges["c/result"], (product.min(), product.max()), rtol=1e-5)
    np.testing.assert_allclose(ranges["c/argument"], (before[1].min(), before[1].max()), rtol=1e-5)
    quantize_files(tmp_path, FILES, Int8Static([{"ids": x}]), ranges=ranges)
    nodes = onnx.load(str(tmp_path / FILES["serve"])).graph.node
    (convolved,), (function,) = ([node for node in nodes if node.op_type == op] for op in ("Conv", "Gelu"))
    makers = {node.output[0]: node.op_type for node in nodes}
    assert [makers[name] for name in (*convolved.input, *function.input)] == ["DequantizeLinear"] * 3
    assert convolved.output[0] in {node.input[0] for node in nodes if node.op_type == "QuantizeLinear"}
    assert [each.s for each in function.attribute] == [b"tanh"]
    steps = [(most - least) / 255 for least, most in (ranges["c/result"], ranges["c/argument"])]
    # Half a step of the product, and what 45 products of rounded factors add at most: 2 steps. Then half a step of the
    # argument; the slope of GELU is below 1.13.
    gelu, sums = (np.abs(after - exact) for after, exact in zip(run_as_loaded(tmp_path, x), before, strict=True))
    assert 0 < sums.max() < 2.5 * steps[0]
    assert sums.max() < gelu.max() < 1.13 * (2.5 * steps[0] + 0.5 * steps[1])


def test_static_activations_of_16_bits_leave_the_rounding_of_the_weights(tmp_path):
    write(tmp_path)
    calibration, kept = [{"ids": IDS}], ("table", "positions")
    found = ranges_of(tmp_path, FILES, calibration, "minmax")
    ranges = {name: (1.05 * low, 1.05 * high) for name, (low, high) in found.items()}  # Rounded weights reach further.
    quantization = Int8Static(calibration, keep_float=kept, activation_bits=16)
    quantize_files(tmp_path, FILES, quantization, ranges=ranges)
    w = weights()
    w["dense/kernel"], w["turned/kernel"] = rounded_by_channel(w["dense/kernel"]), rounded_rows(w["turned/kernel"])
    results = onnx_session(str(tmp_path / "model.onnx"), 1).run(None, {"ids": IDS})
    for got, want in zip(results, expected(IDS, w, np.matmul), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())
    with pytest.raises(QuantizationError, match="activation_bits must be 8 or 16. Received: 4"):
        Int8Static(calibration, activation_bits=4)


def test_what_is_kept_in_float_stays_float(tmp_path):
    write(tmp_path)
    quantize_files(tmp_path, FILES, Int8(keep_float=("dense/*",)))
    kept = initializers(tmp_path)
    assert kept["dense/kernel"].dtype == np.float32
    assert {name for name, array in kept.items() if array.dtype == np.float32 and array.size > 2000} == {"dense/kernel"}
    with pytest.raises(QuantizationError, match=r"'sparse/\*' matches none"):
        quantize_files(tmp_path, FILES, Int8(keep_float=("sparse/*",)))


def test_blocks_of_four_bits_are_the_best_of_the_scales_tried():
    """The error is not larger than that of the scale without clipping."""
    rows = np.random.default_rng(1).normal(size=(50, 64))
    plain = np.abs(rows.reshape(50, 2, 32)).max(-1, keepdims=True) / 8
    codes = np.clip(np.round(rows.reshape(50, 2, 32) / plain), -8, 7) * plain
    found = rounded_by_block(rows, 4, 32)
    assert np.square(found - rows).mean() < 0.95 * np.square(codes.reshape(50, 64) - rows).mean()
    assert np.abs(rounded_by_block(rows, 8, 32) - rows).max() <= np.abs(rows).max() / 127 / 2 * 1.0001


def test_a_row_that_is_no_multiple_of_the_block_keeps_its_width(tmp_path):
    rows = np.random.default_rng(2).normal(size=(3, 20))
    assert rounded_by_block(rows, 4, 16).shape == rows.shape
    np.testing.assert_allclose(rounded_by_block(rows, 8, 16), rows, atol=0.02)


def test_an_evaluation_counts_what_stays_and_what_is_lost():
    inputs = [np.eye(4)[:2], np.eye(4)[2:]]
    labels = [np.array([0, 1]), np.array([2, -100])]
    evaluation = Evaluation(inputs, labels, min_agreement=0.6, max_loss=0.34)
    before = evaluation.measure(lambda batch: {"logits": batch})
    after = evaluation.measure(lambda batch: {"logits": batch[:, [1, 0, 2, 3]] if batch[0, 0] else batch})
    assert before["score"] == 1.0
    with pytest.raises(QuantizationError, match="33.33% of the predictions stay, at least 60.00%"):
        check_loss(evaluation, "onnx, int8", before, after)
    free = Evaluation(inputs, labels, max_loss=0.34)
    with pytest.raises(QuantizationError, match="falls from 1 to 0.3333"):
        check_loss(free, "onnx, int8", before, after)
    assert check_loss(Evaluation(inputs, labels), "onnx", before, after)["agreement"] == pytest.approx(1 / 3)


def test_labels_may_be_one_hot_rows():
    outputs = np.eye(3)[[2, 0, 1, 1]]
    evaluation = Evaluation([outputs], labels=[np.eye(3)[[2, 0, 1, 0]]])
    assert evaluation.measure(lambda batch: {"logits": batch})["score"] == 0.75


def test_a_single_number_is_a_class_above_a_half_or_above_zero():
    shares, logits, labels = np.array([[0.9], [0.2], [0.6]]), np.array([[3.0], [-1.0], [0.2]]), [1.0, 0.0, 0.0]
    for outputs in (shares, logits):
        found = Evaluation([outputs], labels=[labels]).measure(lambda batch: {"spam": batch})
        assert found["answers"].tolist() == [1, 0, 1]
        assert found["score"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([3, 1, 0], "a label is 3; the outputs have 3 classes, from 0"),
        ([-1, 1, 0], "a label is -1; the outputs have 3 classes"),
        ([1, 0], r"labels of shape \(2,\) for outputs of shape \(3, 3\)"),
        (np.full((3, 3), 2), "must be one-hot rows"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, message):
    with pytest.raises(QuantizationError, match=message):
        Evaluation([np.eye(3)], labels=[labels]).measure(lambda batch: {"logits": batch})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: precision_of("int7"), "unknown quantization 'int7'; valid: fp16, int8"),
        (lambda: WeightInt4(block_size=48), "block_size must be 16, 32, 64, 128 or 256, not 48"),
        (lambda: Int8Static(), "needs calibration"),
        (lambda: Evaluation(), "needs inputs, or a score"),
        (lambda: Evaluation([np.eye(2)], labels=[]), "one batch of labels"),
        (lambda: Evaluation([np.eye(2)], max_loss=0.1), "max_loss needs labels"),
        (lambda: Evaluation(score=float, min_agreement=0.9), "min_agreement needs inputs"),
        (lambda: Evaluation([np.eye(2)], min_agreement=95), "min_agreement is a share, from 0 to 1. Received: 95"),
        (lambda: Evaluation([np.eye(2)], labels=[[0, 1]], max_loss=2), "max_loss is a share of the accuracy"),
        (lambda: Evaluation([np.eye(2)], labels=[["cat", "dog"]]), "labels are the numbers of classes"),
        (lambda: Evaluation([np.eye(2)], labels=[[0.5, 1.0]]), "labels are the numbers of classes"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(QuantizationError, match=message):
        make()


def initializers(directory):
    model = onnx.load(str(directory / FILES["serve"]))
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def count(directory, op):
    return sum(node.op_type == op for node in onnx.load(str(directory / FILES["serve"])).graph.node)


STEPS = {name: f"{name}.onnx" for name in ("encode", "prefill", "decode_token")}


def decoder(directory):
    """Files of an encoder-decoder with one weight of 60 inputs, which are no whole number of blocks."""
    rng = np.random.default_rng(4)
    weight = rng.normal(0, 0.1, (60, 64)).astype("float32")
    for name in STEPS:
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, 60])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, str(directory / f"{name}.onnx"))
    return weight, rng.normal(size=(2, 5, 60)).astype("float32")


@pytest.mark.parametrize(("mode", "share"), [("int8", 0.3), ("weight_int4", 0.3)])
def test_encoders_and_decoders_read_the_same_whole_numbers(tmp_path, mode, share):
    weight, x = decoder(tmp_path)
    quantize_files(tmp_path, STEPS, precision_of(mode))
    assert (tmp_path / "model.weights").stat().st_size < share * weight.nbytes + 60 * 2 * 4
    rounded = rounded_by_channel(weight) if mode == "int8" else rounded_with_offset(weight.T, 32).T
    for path in STEPS.values():
        got = onnxruntime.InferenceSession(str(tmp_path / path)).run(None, {"x": x})[0]
        assert np.sqrt(np.mean((got - x @ rounded) ** 2)) < 0.01 * np.sqrt(np.mean((x @ rounded) ** 2))
    kinds = {path: {node.op_type for node in onnx.load(str(tmp_path / path)).graph.node} for path in STEPS.values()}
    assert ("MatMulIntegerToFloat" in kinds["encode.onnx"]) == (mode == "int8")
    # A prompt is read as single tokens are: both add to the cache.
    assert all("MatMulNBits" in kinds[path] for path in ("prefill.onnx", "decode_token.onnx"))


def test_a_decoder_alone_has_a_scale_for_each_block(tmp_path):
    """Its first block is a hundred times as small as the rest: a scale for the whole channel would leave it no codes."""
    weight, _ = decoder(tmp_path)
    weight[:32] /= 100
    steps = {name: path for name, path in STEPS.items() if name != "encode"}
    for path in steps.values():
        model = onnx.load(str(tmp_path / path))
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
        onnx.save(model, str(tmp_path / path))
    quantize_files(tmp_path, steps, Int8())
    x = np.zeros((1, 32, 60), "float32")
    x[0, range(32), range(32)] = 1.0
    rounded = rounded_by_block(weight.T, 8, 32).T
    for path in steps.values():
        got = onnxruntime.InferenceSession(str(tmp_path / path)).run(None, {"x": x})[0]
        np.testing.assert_allclose(got[0], rounded[:32], atol=1e-6 * np.abs(rounded[:32]).max())


def test_scales_by_channel_have_a_zero_point_each(tmp_path):
    """ONNX Runtime gives weights without one a single zero point on processors without VNNI, which it then refuses."""
    write(tmp_path)
    calibration = [{"ids": IDS}]
    ranges = ranges_of(tmp_path, FILES, calibration)
    quantize_files(tmp_path, FILES, Int8Static(calibration), ranges=ranges)
    model = onnx.load(str(tmp_path / FILES["serve"]))
    sizes = {each.name: tuple(each.dims) for each in model.graph.initializer}
    found = [node for node in model.graph.node if node.op_type == "DequantizeLinear" and sizes.get(node.input[1])]
    assert len(found) == 3
    assert all(sizes[node.input[2]] == sizes[node.input[1]] for node in found)


def test_a_row_with_an_outlier_leaves_the_other_rows_exact(tmp_path):
    weight, x = decoder(tmp_path)
    x[0, 0, 3] = 1000.0
    quantize_files(tmp_path, {"serve": "prefill.onnx"}, Int8())
    got = onnxruntime.InferenceSession(str(tmp_path / "prefill.onnx")).run(None, {"x": x})[0]
    want = product_by_row(x.astype("float64"), rounded_by_channel(weight))
    # In float32, values halfway between two codes may be rounded either way.
    np.testing.assert_allclose(got[:, 1:], want[:, 1:], atol=0.02)
    zero = onnxruntime.InferenceSession(str(tmp_path / "prefill.onnx")).run(None, {"x": 0 * x})[0]
    assert not zero.any()
