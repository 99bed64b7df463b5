"""Fusion into `RotaryEmbedding`, in whole models of every layout, and not in other graphs."""

import onnx
import pytest
from onnx_graphs import all_nodes, operators, random, rewritten

from keras_transformer.export.onnx.options import OnnxOptions

HALVES = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 2, 4] x, float[ROWS, length, 1] positions) => (float[batch, length, 2, 4] y)
<float[4] rates = {RATES}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] last = {3}>
{
  products = Mul(positions, rates)
  angles = Unsqueeze(products, two)
  cos = Cos(angles)
  sin = Sin(OTHER)
  first = Slice(x, zero, two, last)
  second = Slice(x, two, four, last)
  turned = Neg(NEGATED)
  quarter = Concat<axis = 3>(turned, KEPT)
  a = Mul(x, cos)
  b = Mul(quarter, sin)
  y = Add(a, b)
}
"""
PAIRS = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 2, 4] x, float[batch, length, 1] positions) => (float[batch, length, 2, 4] y)
<float[4] rates = {RATES}, float[4, 4] turn = {TURN}, int64[1] two = {2}, int64[2] flat = {-1, 4},
 int64[3] heads = {0, 0, -1}>
{
  products = Mul(positions, rates)
  angles = Unsqueeze(products, two)
  cos = Cos(angles)
  sin = Sin(angles)
  matrix = Reshape(x, flat)
  turned = MatMul(matrix, turn)
  shape = Shape(x)
  quarter = Reshape(turned, shape)
  a = Mul(x, cos)
  b = Mul(quarter, sin)
  y = Add(a, b)
}
"""
# KerasHub's form: halves are split, stacked before the last axis, and concatenated by a reshape.
STACKED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length, 2, 4] x, float[batch, length, 1] positions) => (float[batch, length, 2, 4] y)
<float[2] rates = {1.0, 0.5}, int64[1] two = {2}, int64[1] three = {3}, int64[4] one_head = {0, 0, 1, 4},
 int64[4] heads = {0, 0, 2, 4}>
{
  products = Mul(positions, rates)
  row = Unsqueeze(products, two)
  rows = Concat<axis = 2>(row, row)
  angles = Reshape(rows, one_head)
  cos = Cos(angles)
  sin = Sin(angles)
  first, second = Split<axis = 3, num_outputs = 2>(x)
  turned = Neg(NEGATED)
  turned_row = Unsqueeze(turned, three)
  kept_row = Unsqueeze(KEPT, three)
  stacked = Concat<axis = 3>(turned_row, kept_row)
  quarter = Reshape(stacked, heads)
  a = Mul(x, cos)
  b = Mul(quarter, sin)
  y = Add(a, b)
}
"""
TURN = "0., 1., 0., 0., -1., 0., 0., 0., 0., 0., 0., 1., 0., 0., -1., 0."
RIGHT = {"OTHER": "angles", "NEGATED": "second", "KEPT": "first", "RATES": "1.0, 0.5, 1.0, 0.5", "ROWS": "batch"}


def feeds(rows=3):
    return {"x": random(3, 5, 2, 4), "positions": random(rows, 5, 1)}


def written(optimized, name, file="model.onnx"):
    return onnx.load(str(optimized.bundle(name) / file), load_external_data=False)


def rotations(model):
    nodes = [node for node in all_nodes(model.graph) if node.op_type == "RotaryEmbedding"]
    return [{attribute.name: attribute.i for attribute in node.attribute} for node in nodes]


def test_encoder(optimized):
    model = written(optimized, "rms")
    pairs = {"num_heads": 2, "interleaved": 1, "rotary_embedding_dim": 0}
    assert rotations(model) == [pairs, pairs]  # Of the query and of the key.
    found = operators(model)
    assert found["Cos"] == found["Sin"] == 1


@pytest.mark.parametrize("signature", ["prefill", "decode", "decode_token"])
@pytest.mark.parametrize(("name", "interleaved", "width"), [("decoder", 1, 0), ("decoder_24", 0, 2)])
def test_decoder(optimized, signature, name, interleaved, width):
    found = rotations(written(optimized, name, f"model.{signature}.onnx"))
    assert sorted(each.pop("num_heads") for each in found) == [2, 4]
    assert found == [{"interleaved": interleaved, "rotary_embedding_dim": width}] * 2


@pytest.mark.parametrize("rows", ["batch", "1"])
def test_halves(rows):
    found = rewritten(HALVES, feeds(3 if rows == "batch" else 1), **RIGHT | {"ROWS": rows})
    assert found["RotaryEmbedding"] == 1
    assert not found["Neg"]
    assert not found["Slice"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"RATES": "1.0, 0.5, 1.0, 0.4"},  # Two angles in one pair.
        {"RATES": "1.0, 1.0, 0.5, 0.5"},  # Pairs of neighbors.
        {"NEGATED": "first", "KEPT": "second"},  # No quarter turn.
        {"OTHER": "products"},  # Waves of other angles: here of positions for heads.
    ],
)
def test_what_is_no_rotation_of_halves(wrong):
    arrays = feeds() if "OTHER" not in wrong else {"x": random(2, 2, 2, 4), "positions": random(2, 2, 1)}
    assert not rewritten(HALVES, arrays, **RIGHT | wrong)["RotaryEmbedding"]


def test_no_operator_before_opset_23():
    assert not rewritten(HALVES, feeds(), OnnxOptions(opset=22), **RIGHT)["RotaryEmbedding"]


def test_pairs():
    found = rewritten(PAIRS, feeds(), RATES="1.0, 1.0, 0.5, 0.5", TURN=TURN)
    assert found["RotaryEmbedding"] == 1
    assert not found["MatMul"]


@pytest.mark.parametrize(
    ("rates", "turn"), [("1.0, 0.5, 1.0, 0.5", TURN), ("1.0, 1.0, 0.5, 0.5", TURN.replace("-1.", "-2."))]
)
def test_what_is_no_rotation_of_pairs(rates, turn):
    assert not rewritten(PAIRS, feeds(), RATES=rates, TURN=turn)["RotaryEmbedding"]


@pytest.mark.parametrize(("negated", "kept", "expected"), [("second", "first", 1), ("first", "second", 0)])
def test_stacked_halves(negated, kept, expected):
    found = rewritten(STACKED, feeds(), NEGATED=negated, KEPT=kept)
    assert found["RotaryEmbedding"] == expected
    assert found["Split"] == 1 - expected
