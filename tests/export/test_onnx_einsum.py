"""Fusion of the einsums and masks of Keras layers into `Attention`."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx_graphs import operators, random, rewritten

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.optimize import optimize
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of

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
  turned = Transpose<perm = [0, 1, 3, 2]>(k)
  scores = MatMul(query, turned)
  shown = Mul(show, scores)
  chosen = Add(shown, low)
  weights = Softmax<axis = -1>(chosen)
  kept = Mul(show, weights)
  final = Add(kept, none)
  y = MatMul(final, v)
}
"""
EINSUM = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[LEFT] x, float[RIGHT] w) => (float[RESULT] y)
{
  y = Einsum<equation = "EQUATION">(x, w)
}
"""
# Equation -> (matrix products, transposes, reshapes) of it where every axis but b and t is of a known size.
EINSUMS = {
    "abc,cde->abde": (1, 0, 3),  # A projection to heads.
    "btnh,bsnh->bnts": (1, 2, 0),
    "bnts,bsnh->btnh": (1, 2, 0),
    "bsnh,btnh->bnts": (1, 2, 0),  # The operands in the other order.
    "btc,cd->btd": (1, 0, 2),
    "bth,bsh->bst": (1, 1, 0),
    "btn,btm->bnm": (1, 1, 0),
    "bt,bt->bt": (1, 0, 3),
    "bi,j->bij": (1, 0, 3),
}

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
    model.graph.initializer.append(numpy_helper.from_array(kernel, "kernel"))
    changed = ir.from_proto(model)
    optimize(changed, OnnxOptions(), ["kernel"])
    assert operators(ir.to_proto(changed)) == {"MatMul": 1}
    assert list(changed.graph.initializers) == ["kernel"]
    np.testing.assert_array_equal(constant_of(changed.graph.initializers["kernel"]), kernel.reshape(64, 128).T)


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


SIZES = {"b": 3, "t": 5, "s": 7, "n": 2, "m": 6, "h": 4, "a": 3, "c": 8, "d": 2, "e": 4, "i": 3, "j": 2}


def einsum(equation, options=OnnxOptions()):  # noqa: B008
    left, right, result = equation.replace("->", ",").split(",")
    names = {"b": "batch", "t": "length", "a": "batch"}
    shapes = [", ".join(names.get(label, str(SIZES[label])) for label in each) for each in (left, right, result)]
    feeds = {name: random(*(SIZES[label] for label in each)) for name, each in (("x", left), ("w", right))}
    words = dict(zip(("LEFT", "RIGHT", "RESULT"), shapes, strict=True))
    return rewritten(EINSUM, feeds, options, EQUATION=equation, **words)


@pytest.mark.parametrize("equation", EINSUMS)
def test_an_einsum_of_two_is_one_product(equation):
    found = einsum(equation)
    assert not found["Einsum"]
    assert (found["MatMul"], found["Transpose"]) == EINSUMS[equation][:2]
    assert found["Reshape"] <= EINSUMS[equation][2]


@pytest.mark.parametrize("equation", ["btn,bsm->bts", "bth,bsh->ts"])
def test_an_einsum_that_sums_one_operand_stays(equation):
    assert einsum(equation)["Einsum"] == 1


@pytest.mark.parametrize(("repeats", "left"), [("1, 1, 1, 2, 1", 0), ("1, 1, 2, 1, 1", 2)])
def test_heads_that_are_repeated_in_place_are_shared(repeats, left):
    feeds = {"q": random(3, 5, 16), "k": random(3, 5, 2, 1, 4), "v": random(3, 5, 2, 1, 4) + 1}
    found = rewritten(REPEATED, feeds, REPEATS=repeats)
    assert found["Tile"] == left
    assert found["Attention"] == 1
