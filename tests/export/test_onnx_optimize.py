"""The written ONNX graphs: which operators stand in them, and that the exporter proved their values.

Every file here was compared with the Keras model by the export that wrote it: a bundle is there only if it is right.
"""

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser
from onnx_graphs import all_nodes, operators, random, rewritten

from keras_transformer.export import load
from keras_transformer.export.errors import ExportError
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.naming import make_names_unique
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import divide, multiply
from keras_transformer.export.onnx.passes.simplify import simplify

BLOCKS = 1
CHAINS = ("ReduceMean", "Erf", "Softmax", "Sqrt", "Reciprocal", "Gemm")


def written(optimized, name, file="model.onnx"):
    return onnx.load(str(optimized.bundle(name) / file), load_external_data=False)


def opset(model):
    return {each.domain: each.version for each in model.opset_import}


# Whole models.


def test_encoder_is_fused(optimized):
    model = written(optimized, "encoder")
    found = operators(model)
    assert found["LayerNormalization"] == 2 * 2 + 1
    assert found["Attention"] == found["Gelu"] == 2
    assert found["MatMul"] == 6 * 2
    assert not found["Transpose"]
    assert not any(found[each] for each in CHAINS)
    assert opset(model) == {"": 23}


def test_post_norm_and_tanh(optimized):
    model = written(optimized, "post")
    found = operators(model)
    assert found["LayerNormalization"] == 2 * BLOCKS
    assert found["Attention"] == BLOCKS
    kinds = [attribute.s for node in model.graph.node if node.op_type == "Gelu" for attribute in node.attribute]
    assert kinds == [b"tanh"] * BLOCKS


def test_rms_norm_and_rotary(optimized):
    found = operators(written(optimized, "rms"))
    assert found["RMSNormalization"] == 2 * BLOCKS + 1
    assert found["Attention"] == BLOCKS
    assert not found["Softmax"]
    assert not found["ReduceMean"]


def test_vit_is_fused(optimized):
    found = operators(written(optimized, "vit"))
    assert found["LayerNormalization"] == 2 * BLOCKS + 1
    assert found["Attention"] == found["Gelu"] == BLOCKS
    assert found["Transpose"] == 2  # Around the convolution, because images are channels-last.


@pytest.mark.parametrize("signature", ["prefill", "decode", "decode_token"])
def test_grouped_heads_with_a_cache(optimized, signature):
    model = written(optimized, "decoder", f"model.{signature}.onnx")
    found = operators(model)
    assert found["Attention"] == BLOCKS
    assert not found["Softmax"]
    assert found["RMSNormalization"] == 2 * BLOCKS + 1
    assert found["ScatterND"] == 2 * BLOCKS
    for node in model.graph.node:
        if node.op_type == "Attention":  # The cache is an input with 2 key/value heads for 4 query heads.
            makers = {name: each.op_type for each in model.graph.node for name in each.output}
            assert [makers[name] for name in node.input[1:3]] == ["ScatterND"] * 2


def test_weights_that_are_asked_for_stay(optimized):
    found = operators(written(optimized, "scores"))
    assert found["Softmax"] == 1
    assert not found["Attention"]


def test_opset_18_without_contrib(optimized):
    model = written(optimized, "opset_18_standard")
    found = operators(model)
    assert found["LayerNormalization"] == 2 * BLOCKS + 1
    assert found["Erf"] == found["Softmax"] == BLOCKS
    assert not found["Attention"]
    assert not found["Gelu"]
    assert opset(model) == {"": 18}


def test_opset_18_with_contrib(optimized):
    model = written(optimized, "opset_18")
    domains = {node.domain for node in model.graph.node if node.op_type == "Gelu"}
    assert domains == {"com.microsoft"}
    assert operators(model)["Gelu"] == BLOCKS
    assert opset(model) == {"": 18, "com.microsoft": 1}


def test_without_optimize(optimized):
    model = written(optimized, "plain")
    found = operators(model)
    assert opset(model)[""] == 18
    assert not found["LayerNormalization"]
    assert found["Erf"] == BLOCKS


@pytest.mark.parametrize("opset", [17, 99, True])
def test_unknown_opset(opset):
    with pytest.raises(ExportError, match="opset must be one of 18 to 24"):
        OnnxOptions(opset=opset)


def test_opset_needs_optimize():
    with pytest.raises(ExportError, match="needs optimize=True"):
        OnnxOptions(opset=23, optimize=False)


# Names and weights.


def test_axes_have_the_names_of_the_signature(optimized):
    graph = written(optimized, "encoder").graph
    names = {
        value.name: [dimension.dim_param or dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert names.pop("token_ids") == names.pop("padding_mask") == ["batch", "length"]
    assert list(names.values()) == [["batch", "length", 16]]


def test_weights_have_the_paths_of_variables(optimized):
    model = written(optimized, "encoder")
    names = {tensor.name for tensor in model.graph.initializer}
    layers = ("self_attention/query", "self_attention/attention_output", "feedforward/hidden", "feedforward/output")
    expected = {
        f"encoder_block_{i}/{layer}/{part}" for i in range(2) for layer in layers for part in ("kernel", "bias")
    }
    assert expected | {"token_embedding/embeddings", "final_norm/gamma", "final_norm/beta"} <= names
    assert not any(name.startswith("weight_") for name in names)


def test_nodes_have_the_paths_of_layers(optimized):
    nodes = {node.name: node for node in written(optimized, "encoder").graph.node}
    product = nodes["encoder_block_1/feedforward/hidden/MatMul"]
    assert product.op_type == "MatMul"
    assert product.input[1] == "encoder_block_1/feedforward/hidden/kernel"
    assert nodes["encoder_block_0/self_attention/Attention"].op_type == "Attention"
    assert nodes["token_embedding/Gather"].op_type == "Gather"


def test_variables_of_one_path_stay_apart(optimized):
    names = [tensor.name for tensor in written(optimized, "same_names").graph.initializer]
    assert len(names) == len(set(names)) == 4


def test_norm_after_a_convolution_to_one_position_is_over_channels(optimized):
    """tf2onnx would normalize over the positions, and the export would raise `ParityError`."""
    optimized.bundle("norm_behind_convolution")


def test_one_file_holds_its_weights(optimized):
    assert not (optimized.bundle("encoder") / "model.weights").exists()


def test_large_weights_lie_outside(optimized):
    directory = optimized.bundle("external")
    inside, outside = optimized.bundle("encoder") / "model.onnx", directory / "model.onnx"
    outer = [
        tensor for tensor in onnx.load(outside, load_external_data=False).graph.initializer if tensor.external_data
    ]
    lengths = [int(entry.value) for tensor in outer for entry in tensor.external_data if entry.key == "length"]
    # Each array starts at most 64 bytes after the previous one; none is large enough for page alignment.
    assert len(lengths) > 10
    assert sum(lengths) <= (directory / "model.weights").stat().st_size < sum(lengths) + 64 * len(lengths)
    assert outside.stat().st_size < 0.7 * inside.stat().st_size
    inputs = {"token_ids": np.array([[3, 1, 4]], "int32"), "padding_mask": np.array([[True, True, False]])}
    found, expected = (load(optimized.bundle(name), "onnx")(inputs) for name in ("external", "encoder"))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_all_signatures_share_the_weights(optimized):
    directory = optimized.bundle("decoder")
    total = 0
    for name in ("prefill", "decode", "decode_token"):
        model = written(optimized, "decoder", f"model.{name}.onnx")
        places = {tensor.name: tensor.external_data for tensor in model.graph.initializer if tensor.external_data}
        assert {entry.value for entries in places.values() for entry in entries if entry.key == "location"} == {
            "model.weights"
        }
        total = max(total, sum(int(e.value) for entries in places.values() for e in entries if e.key == "length"))
    # Pages of 4 KiB: each array is stored once.
    assert (directory / "model.weights").stat().st_size < total + 4096 * len(places)


# Rules on hand-written graphs.

LAYER_NORM = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 4] x) => (float[batch, length, 4] y)
<float[4] scale = {1.0, 2.0, 3.0, 4.0}, float[4] bias = {0.5, 0.25, 0.0, -1.0}, float epsilon = {0.001},
 int64[1] axes = {AXIS}, int64[1] last = {-1}>
{
  mean = ReduceMean<keepdims = 1>(x, axes)
  deviation = Sub(x, mean)
  square = Mul(deviation, deviation)
  variance = ReduceMean<keepdims = 1>(square, last)
  sum = Add(variance, epsilon)
  root = Sqrt(sum)
  inverse = Reciprocal(root)
  factor = Mul(inverse, scale)
  turned = Neg(mean)
  first = Mul(x, factor)
  second = Mul(turned, factor)
  third = Add(second, bias)
  y = Add(first, third)
}
"""
GELU = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 4] x) => (float[batch, 4] y)
<float half = {HALF}, float one = {1.0}, float root = {0.70710678}>
{
  first = Mul(half, x)
  inner = Mul(x, root)
  erf = Erf(inner)
  second = Add(one, erf)
  y = Mul(first, second)
}
"""
ATTENTION = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 2, length, 4] q, float[batch, KEYHEADS, length, 4] k, float[batch, 2, length, 4] v, float[BIAS] bias)
    => (float[batch, 2, length, 4] y)
{
  turned = Transpose<perm = [0, 1, 3, 2]>(k)
  scores = MatMul(q, turned)
  masked = Add(scores, bias)
  weights = Softmax<axis = SOFTMAX>(masked)
  y = MatMul(weights, v)
}
"""
TABLE = """
<ir_version: 10, opset_import: ["" : 18]>
g (int32[batch, length] ids) => (float[batch, length, 2] y)
<float[3, 2] table = {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}, int32 rows = {ROWS}, float zero = {0.0}>
{
  numbers = Cast<to = 1>(ids)
  negative = Less(numbers, zero)
  positive = Not(negative)
  second = Cast<to = 6>(positive)
  kept = Mul(ids, second)
  first = Cast<to = 6>(negative)
  wrapped = Add(ids, rows)
  moved = Mul(first, wrapped)
  indices = Add(moved, kept)
  y = Gather<axis = 0>(table, indices)
}
"""

GATE = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 6, 5, 2] x) => (float[batch, 6, 5, 3] y)
<float[3, 2, 1, 1] first = {0.5, -1.0, 2.0, 0.25, 1.0, 1.5}, float[3] scale = {1.0, -2.0, 0.5}, int64[2] axes = {AXES},
 float[3, 3, 1, 1] second = {1.0, 0.5, -1.0, 0.0, 2.0, 1.0, -0.5, 0.25, 1.0}>
{
  channels = Transpose<perm = [0, 3, 1, 2]>(x)
  convolved = Conv(channels, first)
  turned = Transpose<perm = [0, 2, 3, 1]>(convolved)
  scaled = Mul(turned, scale)
  active = Relu(scaled)
  mean = ReduceMean<keepdims = 1>(active, axes)
  mean_first = Transpose<perm = [0, 3, 1, 2]>(mean)
  gate = Conv(mean_first, second)
  gate_last = Transpose<perm = [0, 2, 3, 1]>(gate)
  y = Mul(active, gate_last)
}
"""
POOLED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 6, 5, 2] x) => (float[batch, 2] y)
<int64[2] axes = {1, 2}, int64[2] kernel = {2, 2}>
{
  BEFORE
  y = ReduceMean<keepdims = 0>(turned, axes)
}
"""
AFTER_A_POOL = """channels = Transpose<perm = [0, 3, 1, 2]>(x)
  pooled = MaxPool<kernel_shape = [2, 2]>(channels)
  turned = Transpose<perm = [0, 2, 3, 1]>(pooled)"""


def test_a_mean_of_channels_between_convolutions_is_a_pool():
    found = rewritten(GATE, {"x": random(3, 6, 5, 2)}, AXES="1, 2")
    assert (found["GlobalAveragePool"], found["ReduceMean"]) == (1, 0)
    assert found["Transpose"] == 4  # At both ends, of the pool and of the gate; none between pool and gate.
    assert not found["Reshape"]


def test_a_mean_over_channels_is_no_pool():
    found = rewritten(
        GATE.replace("gate = Conv(mean_first, second)", "gate = Relu(mean_first)"),
        {"x": random(3, 6, 5, 2)},
        AXES="2, 3",
    )
    assert (found["GlobalAveragePool"], found["ReduceMean"]) == (0, 1)


@pytest.mark.parametrize(("before", "pools"), [(AFTER_A_POOL, 1), ("turned = Softmax(x)", 0)])
def test_means_are_pools_behind_channels_that_come_first(before, pools):
    assert rewritten(POOLED, {"x": random(3, 6, 5, 2)}, BEFORE=before)["GlobalAveragePool"] == pools


CAUSAL = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 2] x) => (float[batch, length, 3] y)
<float[3, 2, 1, 3] kernel = {0.5, -1.0, 2.0, 0.25, 1.0, 1.5, 1.0, 0.5, -1.0, 0.0, 2.0, 1.0, -0.5, 0.25, 1.0, 1.0, 2.0, 3.0},
 float[3] bias = {1.0, -2.0, 0.5}, int64[1] rows = {ROW}, int64[6] pads = {PADS}>
{
  padded = Pad(x, pads)
  row = Unsqueeze(padded, rows)
  channels = Transpose<perm = [0, 3, 1, 2]>(row)
  convolved = Conv<dilations = [1, 2], pads = [0, SIDE, 0, 0]>(channels, kernel)
  turned = Transpose<perm = [0, 2, 3, 1]>(convolved)
  sequence = Squeeze(turned, rows)
  biased = Add(sequence, bias)
  y = Relu(biased)
}
"""


@pytest.mark.parametrize(("pads", "side", "row"), [("0, 4, 0, 0, 0, 0", 0, 1), ("0, 1, 0, 0, 2, 0", 1, -3)])
def test_a_causal_convolution_is_one_operator(pads, side, row):
    found = rewritten(CAUSAL, {"x": random(2, 7, 2)}, PADS=pads, SIDE=side, ROW=row)
    assert found == {"Unsqueeze": 1, "Transpose": 2, "Conv": 1, "Relu": 1, "Squeeze": 1}


def test_between_two_convolutions_over_a_sequence_no_axis_is_moved():
    second = """last = Unsqueeze(active, rows)
  last_channels = Transpose<perm = [0, 3, 1, 2]>(last)
  pooled = MaxPool<kernel_shape = [1, 2]>(last_channels)
  last_turned = Transpose<perm = [0, 2, 3, 1]>(pooled)
  y = Squeeze(last_turned, rows)"""
    text = CAUSAL.replace("y = Relu(biased)", f"active = Relu(biased)\n  {second}")
    found = rewritten(text, {"x": random(2, 7, 2)}, PADS="0, 4, 0, 0, 0, 0", SIDE=0, ROW=1)
    assert found == {"Unsqueeze": 1, "Transpose": 2, "Conv": 1, "Relu": 1, "MaxPool": 1, "Squeeze": 1}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (("0, 4, 0, 0, 0, 0", "0, 3, 1, 0, 1, 0"), {"Pad": 1, "Add": 0}),  # Channels are added, which the kernel lacks.
        (("Pad(x", 'Pad<mode = "edge">(x'), {"Pad": 1, "Add": 0}),
        (("float[3] bias = {1.0, -2.0, 0.5}", "float[1] bias = {1.0}"), {"Pad": 0, "Add": 1}),
    ],
)
def test_what_a_convolution_cannot_add_by_itself_stays(change, left):
    text = CAUSAL.replace("PADS", "0, 4, 0, 0, 0, 0").replace("SIDE", "0").replace("ROW", "1").replace(*change)
    if "0, 3, 1, 0, 1, 0" in text:
        text = text.replace("float[batch, length, 2] x", "float[batch, length, 1] x")
    feeds = {"x": random(2, 7, 1 if "length, 1] x" in text else 2)}
    found = rewritten(text, feeds)
    assert {key: found[key] for key in left} == left


def test_layer_normalization():
    assert rewritten(LAYER_NORM, {"x": random(2, 3, 4)}, AXIS=-1)["LayerNormalization"] == 1
    assert rewritten(LAYER_NORM, {"x": random(2, 3, 4)}, AXIS=2)["LayerNormalization"] == 1


def test_a_mean_over_another_axis_is_no_layer_normalization():
    assert not rewritten(LAYER_NORM, {"x": random(2, 3, 4)}, AXIS=1)["LayerNormalization"]


def test_gelu():
    assert rewritten(GELU, {"x": random(3, 4)}, HALF=0.5) == {"Gelu": 1}


@pytest.mark.parametrize(("opset", "contrib", "left"), [(20, False, {"Gelu": 1}), (19, True, {"Gelu": 1})])
def test_gelu_of_older_opsets(opset, contrib, left):
    assert rewritten(GELU, {"x": random(3, 4)}, OnnxOptions(opset, contrib), HALF=0.5) == left


def test_no_gelu_where_there_is_none():
    assert rewritten(GELU, {"x": random(3, 4)}, OnnxOptions(19, contrib_ops=False), HALF=0.5)["Erf"] == 1


def test_another_factor_is_no_gelu():
    assert not rewritten(GELU, {"x": random(3, 4)}, HALF=0.6)["Gelu"]


def attention_feeds(keys=2, bias=(3, 1, 5, 5)):
    return {"q": random(3, 2, 5, 4), "k": random(3, keys, 5, 4), "v": random(3, 2, 5, 4), "bias": random(*bias)}


@pytest.mark.parametrize(
    ("shape", "bias"),
    [
        ("batch, 1, length, length", (3, 1, 5, 5)),
        ("batch, 1, 1, length", (3, 1, 1, 5)),
        ("1, 2, length, length", (1, 2, 5, 5)),
    ]
    + [("1, 1, length, 1", (1, 1, 5, 1)), ("1, 1, 1, 1", (1, 1, 1, 1)), ("batch, 2, length, length", (3, 2, 5, 5))],
)
def test_attention_with_every_shape_of_bias(shape, bias):
    found = rewritten(ATTENTION, attention_feeds(bias=bias), KEYHEADS=2, BIAS=shape, SOFTMAX=-1)
    assert found["Attention"] == 1
    assert not found["Softmax"]
    assert not found["Transpose"]


@pytest.mark.parametrize(
    ("keys", "softmax", "shape", "bias"),
    [
        (1, -1, "batch, 1, length, length", (3, 1, 5, 5)),  # Keys that numpy's rules spread over the heads.
        (2, 2, "batch, 1, length, length", (3, 1, 5, 5)),  # A softmax over the queries.
        (2, -1, "batch, 1, other, length", (3, 1, 5, 5)),  # Nothing says that this is the number of queries.
    ],
)
def test_what_is_no_attention(keys, softmax, shape, bias):
    found = rewritten(ATTENTION, attention_feeds(keys, bias), KEYHEADS=keys, BIAS=shape, SOFTMAX=softmax)
    assert found["Softmax"] == 1
    assert not found["Attention"]


def test_a_table_takes_negative_indices_by_itself():
    feeds = {"ids": np.array([[0, -1, 2], [-3, 1, -2]], "int32")}
    assert rewritten(TABLE, feeds, ROWS=3) == {"Gather": 1}


def test_another_offset_stays():
    feeds = {"ids": np.array([[0, -1, 2]], "int32")}
    assert rewritten(TABLE, feeds, ROWS=2)["Less"] == 1


def test_a_rewrite_that_fails_leaves_the_graph(monkeypatch):
    from keras_transformer.export.onnx import convert as writer
    from keras_transformer.export.onnx.passes import optimize as onnx_optimize

    def fail(*arguments):
        raise RuntimeError("no such rule")

    monkeypatch.setattr(onnx_optimize, "optimize", fail)
    model = ir.from_proto(parser.parse_model(GELU.replace("HALF", "0.5")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert writer._optimized(model, OnnxOptions(), []) is model
    assert "no such rule" in str(caught[0].message)


# Sizes.


def test_products_of_sizes():
    assert multiply("length", 4, "batch", 2) == multiply(8, "batch", "length") == "8*batch*length"
    assert divide("8*batch*length", "2*length") == "4*batch"
    assert divide("8*batch", "length") is None
    assert divide("3*batch", 2) is None
    assert multiply(2, 3) == 6


def test_sizes_follow_a_computed_reshape():
    text = """
    <ir_version: 10, opset_import: ["" : 18]>
    g (float[batch, length, 6] x, float[100, 6] table) => (float[a, b, c, d] y)
    <int64[1] minus = {-1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[2] heads = {2, 3},
     int64[2] flat = {-1, 6}>
    {
      shape = Shape(x)
      length = Slice(shape, one, two, zero)
      rows = Slice(table, zero, length, zero)
      sum = Add(x, rows)
      matrix = Reshape(sum, flat)
      target = Concat<axis = 0>(minus, length, heads)
      y = Reshape(matrix, target)
    }
    """
    model = ir.from_proto(parser.parse_model(text))
    Dims().infer(model.graph)
    found = {value.name: sizes_of(value) for node in model.graph for value in node.outputs}
    assert found["sum"] == ["batch", "length", 6]
    assert found["matrix"] == ["batch*length", 6]
    assert found["y"] == ["batch", "length", 2, 3]
    assert found["rows"][0] not in ("length", 100)


# Names.


def test_no_body_repeats_a_name_around_it_or_beside_it():
    text = """
    <ir_version: 10, opset_import: ["" : 18]>
    g (float[n] x, bool flag) => (float[n] y)
    <int64 count = {3}, bool go = {1}>
    {
      last = Loop <body = body (int64 index, bool again, float[n] state) => (bool goes_on, float[n] next) {
        goes_on = Identity(again)
        value = Neg(state)
        next = Exp(value)
      }>(count, go, x)
      value = Neg(last)
      y = If <then_branch = first () => (float[n] chosen) { inner = Neg(value)  chosen = Exp(inner) },
              else_branch = second () => (float[n] chosen) { inner = Exp(value)  chosen = Neg(inner) }>(flag)
    }
    """
    model = ir.from_proto(parser.parse_model(text))
    make_names_unique(model.graph)
    proto = ir.to_proto(model)
    names = [name for node in all_nodes(proto.graph) for name in node.output]
    assert len(names) == len(set(names)) == 10
    assert len({node.name for node in all_nodes(proto.graph)}) == 10
    assert [each.name for each in (*proto.graph.input, *proto.graph.output)] == ["x", "flag", "y"]
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    x = last = np.array([0.0, 1.0], "float32")
    for _ in range(3):
        last = np.exp(-last)
    for flag, expected in ((True, np.exp(last)), (False, -np.exp(-last))):
        (found,) = session.run(None, {"x": x, "flag": np.array(flag)})
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_functions_of_branches_and_loops_have_the_shapes_of_their_arguments():
    import tensorflow as tf

    from keras_transformer.export.onnx import rewriters

    def scaled_in_a_loop(x, y):
        def step(i, z):
            return i + 1, tf.cond(z[0, 0] > 0, lambda: z * y[:1, :1], lambda: z)

        return tf.while_loop(lambda i, z: i < 3, step, (0, x))[1]

    function = tf.function(lambda is_one, x, y: tf.cond(is_one, lambda: x + y[0], lambda: scaled_in_a_loop(x, y)))
    specs = [
        tf.TensorSpec(shape, dtype) for shape, dtype in (((), "bool"), ((None, 3), "float32"), ((2, 3), "float32"))
    ]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(function.get_concrete_function(*specs).graph.as_graph_def(), name="")
        functions = {each.name: {str(tensor.shape) for tensor in each.inputs} for each in rewriters._functions(graph)}
    branches = [shapes for name, shapes in functions.items() if "_true_" in name or "_false_" in name]
    assert branches == [{"(None, 3)", "(2, 3)"}] * 4
    (body,) = (shapes for name, shapes in functions.items() if "while_body" in name)
    assert body == {"()", "(None, 3)", "(2, 3)"}


def test_outputs_that_are_constants_or_equal_to_others_keep_names_and_types():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        graph (float[N, 2] x) => (float[2] one, float[N, 2] y, float[2] other, float[N, 2] half)
        <float[2] c = {3.0, -4.0}>
        {
            one = Identity(c)
            other = Identity(c)
            first = Sigmoid(x)
            y = Add(first, c)
            half = Sigmoid(x)
        }""")
    simplified = ir.from_proto(model)
    simplify(simplified)
    assert all(each.producer() is not None for each in simplified.graph.outputs)
    saved = ir.to_proto(simplified)
    onnx.checker.check_model(saved, full_check=True)
    assert [each.op_type for each in saved.graph.node].count("Sigmoid") == 1
    session = onnxruntime.InferenceSession(saved.SerializeToString())
    assert [each.name for each in session.get_outputs()] == ["one", "y", "other", "half"]
    x = np.array([[0.5, -2.0]], "float32")
    one, y, other, half = session.run(None, {"x": x})
    np.testing.assert_array_equal([one, other], [[3, -4]] * 2)
    np.testing.assert_allclose(half, 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(y, half + [3, -4], rtol=1e-6)


def test_products_of_integers_share_no_zero_point_of_zero():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        graph (int8[N, 2] x) => (int32[N, 2] z)
        <int8[2, 2] weight = {3, -4, 5, 6}, int8 zero = {0}, int8 two = {2}>
        {
            one = MatMulInteger(x, weight, zero, zero)
            other = MatMulInteger(x, weight, two, zero)
            z = Add(one, other)
        }""")
    simplified = ir.from_proto(model)
    simplify(simplified)
    saved = ir.to_proto(simplified)
    points = [[bool(each) for each in node.input[2:]] for node in saved.graph.node if node.op_type == "MatMulInteger"]
    assert sorted(map(any, points)) == [False, True]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(saved.SerializeToString(), options)
    # (1, -2) and (-1, -4) times the weight.
    np.testing.assert_array_equal(session.run(None, {"x": np.array([[1, -2]], "int8")})[0], [[-30, -36]])
