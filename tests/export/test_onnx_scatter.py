"""Fusion of cache updates into `TensorScatter` (opset 24), and of nothing else."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_graphs import operators, random, rewritten

from keras_transformer.export.onnx.options import OnnxOptions

needs_kernel = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 25), reason="ONNX Runtime 1.25 brought the kernel"
)

# Indices as in `attention/cache/`: rows of the batch, heads and slots, broadcast by adding zeros.
CACHE = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 2, slots, 3] past, float[batch, length, 2, 3] new, int64[batch] index) => (float[batch, 2, slots, 3] y)
<int64[1, 1, 2] heads = {HEADS}, int64[2] flat = {-1, 3}, int64[1] all = {-1}, int64[1] one = {1}, int64[1] zero = {0},
 int64 first = {0}, int64 step = {STEP}, int64[3] as_rows = {-1, 1, 1}, int64[2] as_column = {-1, 1}, int64[1] two = {2}>
{
  shape = Shape(new)
  batches = Slice(shape, zero, one, zero)
  lengths = Slice(shape, one, two, zero)
  batch = Squeeze(batches, zero)
  length = Squeeze(lengths, zero)
  counted = Range(first, batch, step)
  rows = Reshape(counted, as_rows)
  steps = Range(first, length, step)
  row_of_steps = Unsqueeze(steps, zero)
  starts = Reshape(index, as_column)
  places = Add(starts, row_of_steps)
  slots = Unsqueeze(places, two)
  no_rows = Mul(rows, first)
  no_heads = Mul(heads, first)
  no_slots = Mul(slots, first)
  r1 = Add(rows, no_slots)
  r2 = Add(r1, no_heads)
  h1 = Add(heads, no_rows)
  h2 = Add(h1, no_slots)
  s1 = Add(slots, no_rows)
  s2 = Add(s1, no_heads)
  rc = Reshape(r2, all)
  hc = Reshape(h2, all)
  sc = Reshape(s2, all)
  ru = Unsqueeze(rc, one)
  hu = Unsqueeze(hc, one)
  su = Unsqueeze(sc, one)
  grid = Concat<axis = 1>(ru, hu, su)
  update = Reshape(new, flat)
  y = ScatterND(past, grid, update)
}
"""
LATEST = OnnxOptions(opset=24)


def feeds():
    return {"past": random(3, 2, 7, 3), "new": random(3, 4, 2, 3) + 5, "index": np.array([0, 3, 1])}


@needs_kernel
def test_update_of_a_cache():
    found = rewritten(CACHE, feeds(), LATEST, HEADS="0, 1", STEP=1)
    assert found["TensorScatter"] == 1
    assert not found["ScatterND"]
    assert not found["Range"]


def test_no_operator_before_opset_24():
    found = rewritten(CACHE, feeds(), HEADS="0, 1", STEP=1)
    assert found["ScatterND"] == 1
    assert not found["TensorScatter"]


def test_heads_in_another_order():
    assert not rewritten(CACHE, feeds(), LATEST, HEADS="1, 0", STEP=1)["TensorScatter"]


@needs_kernel
@pytest.mark.parametrize("signature", ["prefill", "decode", "decode_token"])
def test_decoder(optimized, signature):
    model = onnx.load(str(optimized.bundle("decoder_24") / f"model.{signature}.onnx"), load_external_data=False)
    found = operators(model)
    assert found["TensorScatter"] == 2
    assert not found["ScatterND"]
    assert [each.version for each in model.opset_import if not each.domain] == [24]
    starts = [node.input[2:] for node in model.graph.node if node.op_type == "TensorScatter"]
    assert all(bool(start) == (signature != "prefill") for start in starts)  # Without a start: from the first slot.


def test_masks_and_places_are_computed_once(optimized):
    model = onnx.load(str(optimized.bundle("two_blocks") / "model.decode.onnx"), load_external_data=False)
    found = operators(model)
    assert found["ScatterND"] == 4
    assert found["GreaterOrEqual"] == found["Cos"] == 1
    assert len({node.input[1] for node in model.graph.node if node.op_type == "ScatterND"}) == 1


def test_loops_share_too_and_attend(optimized):
    model = onnx.load(str(optimized.bundle("two_blocks") / "model.generate.onnx"), load_external_data=False)
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    (body,) = [attribute.g for attribute in loop.attribute if attribute.name == "body"]
    kinds = [node.op_type for node in body.node]
    assert kinds.count("Attention") == 2
    assert kinds.count("Softmax") == 0
    assert kinds.count("RotaryEmbedding") == 4
    assert kinds.count("GreaterOrEqual") == kinds.count("Cos") == 1
