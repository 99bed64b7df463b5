"""Fusion of the einsums and masks of Keras layers into `Attention`."""

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx_graphs import operators, random, rewritten

from keras_transformer.export.onnx.optimize import optimize_proto
from keras_transformer.export.onnx.options import OnnxOptions

pytestmark = pytest.mark.slow

# The masked softmax of Keras: selection as products with 0 and 1, before and after it.
MASKED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 2, length, 4] q, float[batch, 2, length, 4] k, float[batch, 2, length, 4] v,
   bool[batch, 1, 1, length] mask) => (float[batch, 2, length, 4] y)
<float lowest = {LOWEST}, float nothing = {NOTHING}, float half = {0.5}>
{
  hidden = Not(mask)
  hide = Cast<to = 1>(hidden)
  show = Cast<to = 1>(mask)
  low = Mul(lowest, hide)
  none = Mul(nothing, hide)
  query = Mul(q, half)
  turned = Transpose<perm = [0, 1, 3, 2]>(query)
  products = MatMul(k, turned)
  scores = Transpose<perm = [0, 1, 3, 2]>(products)
  shown = Mul(show, scores)
  chosen = Add(shown, low)
  weights = Softmax<axis = -1>(chosen)
  kept = Mul(show, weights)
  final = Add(kept, none)
  y = MatMul(final, v)
}
"""
GROUPS = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 2, 4] q, float[batch, length, 2, 4] k, float[batch, length, 2, 4] v)
    => (float[batch, length, 2, 4] y)
<int64[1] axis = {4}, int64[3] rows = {-1, 0, 4}, float half = {0.5}, int64[1] minus = {-1}, int64[1] heads = {HEADS},
 int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] four = {4}>
{
  shape = Shape(q)
  length = Slice(shape, one, two, zero)
  rows_of_all = Concat<axis = 0>(minus, length, four)
  products_of_all = Concat<axis = 0>(minus, heads, length, length, one)
  weights_of_all = Concat<axis = 0>(minus, length, length)
  contexts_of_all = Concat<axis = 0>(minus, heads, length, four)
  q5 = Unsqueeze(q, axis)
  k5 = Unsqueeze(k, axis)
  v5 = Unsqueeze(v, axis)
  qt = Transpose<perm = [0, 2, 1, 3, 4]>(q5)
  kt = Transpose<perm = [0, 2, 1, 4, 3]>(k5)
  vt = Transpose<perm = [0, 2, 1, 3, 4]>(v5)
  q3 = Reshape(qt, rows_of_all)
  k3 = Reshape(kt, rows_of_all)
  v3 = Reshape(vt, rows_of_all)
  kk = Transpose<perm = [0, 2, 1]>(k3)
  product = MatMul(q3, kk)
  scores5 = Reshape(product, products_of_all)
  scores = Squeeze(scores5, axis)
  scaled = Mul(scores, half)
  weights = Softmax<axis = -1>(scaled)
  w3 = Reshape(weights, weights_of_all)
  context = MatMul(w3, v3)
  c4 = Reshape(context, contexts_of_all)
  y = Transpose<perm = [0, 2, 1, 3]>(c4)
}
"""


REPEATED = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[batch, length, 16] q, float[batch, length, 2, 1, 4] k, float[batch, length, 2, 1, 4] v)
    => (float[batch, length, 16] y)
<int64[5] repeats = {REPEATS}, int64[3] flat = {0, 0, 16}>
{
  keys = Tile(k, repeats)
  values = Tile(v, repeats)
  keys_of_all = Reshape(keys, flat)
  values_of_all = Reshape(values, flat)
  y = Attention<q_num_heads = 4, kv_num_heads = 4, scale = 0.5>(q, keys_of_all, values_of_all)
}
"""


def written(optimized, name):
    return onnx.load(str(optimized.bundle(name) / "model.onnx"), load_external_data=False)


@pytest.mark.parametrize("name", ["keras_masked", "keras_causal"])
def test_layers_of_keras(optimized, name):
    model = written(optimized, name)
    found = operators(model)
    assert found["Attention"] == 1
    assert not found["Softmax"]
    assert not found["Transpose"]
    assert found["MatMul"] == 4
    weights = {tensor.name for tensor in model.graph.initializer}
    assert {f"attention/{part}/bias" for part in ("query", "key", "value")} <= weights


def test_a_weight_that_is_reshaped_keeps_its_name():
    text = """
    <ir_version: 10, opset_import: ["" : 18]>
    g (float[batch, 128] x, float[1, 1, 64, 4, 32] kernel) => (float[batch, 64] y)
    <int64[2] shape = {64, 128}>
    {
      matrix = Reshape(kernel, shape)
      y = Gemm<transB = 1>(x, matrix)
    }
    """
    model = parser.parse_model(text)
    del model.graph.input[1]
    kernel = random(1, 1, 64, 4, 32)
    after, arrays = optimize_proto(model, {"kernel": kernel}, OnnxOptions())
    assert operators(after) == {"MatMul": 1}
    assert list(arrays) == ["kernel"]
    np.testing.assert_array_equal(arrays["kernel"], kernel.reshape(64, 128).T)


def masked_feeds():
    mask = np.ones((3, 1, 1, 5), bool)
    mask[1, ..., 3:] = False
    mask[2] = False  # All keys masked: the output is zero.
    return {"q": random(3, 2, 5, 4), "k": random(3, 2, 5, 4) + 1, "v": random(3, 2, 5, 4), "mask": mask}


def test_masked_softmax():
    found = rewritten(MASKED, masked_feeds(), LOWEST=-1e9, NOTHING=0.0)
    assert found["Attention"] == 1
    assert not found["Softmax"]


@pytest.mark.parametrize(("lowest", "nothing"), [(-5.0, 0.0), (-1e9, 1.0)])
def test_masks_of_other_numbers(lowest, nothing):
    found = rewritten(MASKED, masked_feeds(), LOWEST=lowest, NOTHING=nothing)
    assert not found["Attention"]


def test_products_of_groups():
    feeds = {name: random(3, 5, 2, 4) + place for place, name in enumerate("qkv")}
    found = rewritten(GROUPS, feeds, HEADS=2)
    assert found["Attention"] == 1
    assert not found["Transpose"]
    assert not found["Softmax"]


@pytest.mark.parametrize(("repeats", "left"), [("1, 1, 1, 2, 1", 0), ("1, 1, 2, 1, 1", 2)])
def test_heads_that_are_repeated_in_place_are_shared(repeats, left):
    feeds = {"q": random(3, 5, 16), "k": random(3, 5, 2, 1, 4), "v": random(3, 5, 2, 1, 4) + 1}
    found = rewritten(REPEATED, feeds, REPEATS=repeats)
    assert found["Tile"] == left
    assert found["Attention"] == 1
