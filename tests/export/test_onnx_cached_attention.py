"""Attention over a key/value cache as `GroupQueryAttention`, and only where the graph shows that it is the same."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser
from onnx_graphs import operators, random

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.optimize import optimize

# One token of each row at a slot of its own: 4 heads of queries, 2 of keys and values.
STEP = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[batch, 4, 1, WIDTH] query, float[batch, 1, 2, WIDTH] key, float[batch, 1, 2, WIDTH] value,
   float[batch, 2, slots, WIDTH] past_key, float[batch, 2, slots, WIDTH] past_value, int32[batch] index, int32[batch] other)
=> (float[batch, 4, 1, WIDTH] attended, float[batch, 2, slots, WIDTH] new_key, float[batch, 2, slots, WIDTH] new_value)
<int32[1, 1, 2] heads = {0, 1}, int64[2] flat = {-1, WIDTH}, int64[1] all = {-1}, int64[1] last = {1}, int32 zero = {0},
 int32 one = {1}, int64[3] as_rows = {-1, 1, 1}, int64[4] as_queries = {-1, 1, 1, 1}, int64[4] as_keys = {1, 1, 1, -1},
 int64[1] first = {0}, float lowest = {LOWEST}, int32 width = {3}>
{
  shape = Shape<start = 0, end = 1>(query)
  shape_32 = Cast<to = 6>(shape)
  batch = Squeeze(shape_32, first)
  counted = Range(zero, batch, one)
  rows = Reshape(counted, as_rows)
  starts = Reshape(index, as_rows)
  other_starts = Reshape(other, as_rows)
  no_rows = Mul(rows, zero)
  no_heads = Mul(heads, zero)
  no_slots = Mul(starts, zero)
  r1 = Add(rows, no_slots)
  r2 = Add(r1, no_heads)
  h1 = Add(heads, no_rows)
  h2 = Add(h1, no_slots)
  s1 = Add(starts, no_rows)
  s2 = Add(s1, no_heads)
  o1 = Add(other_starts, no_rows)
  o2 = Add(o1, no_heads)
  rc = Reshape(r2, all)
  hc = Reshape(h2, all)
  sc = Reshape(s2, all)
  oc = Reshape(o2, all)
  ru = Unsqueeze(rc, last)
  hu = Unsqueeze(hc, last)
  su = Unsqueeze(sc, last)
  ou = Unsqueeze(oc, last)
  grid_32 = Concat<axis = 1>(ru, hu, su)
  other_grid_32 = Concat<axis = 1>(ru, hu, ou)
  grid = Cast<to = 7>(grid_32)
  other_grid = Cast<to = 7>(other_grid_32)
  key_rows = Reshape(key, flat)
  value_rows = Reshape(value, flat)
  new_key = ScatterND(past_key, grid, key_rows)
  new_value = ScatterND(past_value, VALUE_GRID, value_rows)
  length = Shape<start = 2, end = 3>(past_key)
  length_32 = Cast<to = 6>(length)
  count = Squeeze(length_32, first)
  places = Range(zero, count, one)
  slot = Reshape(places, as_keys)
  position = Reshape(index, as_queries)
  later = Add(position, one)
  difference = Sub(position, slot)
  distance = Abs(difference)
  near = Less(distance, width)
  before = GreaterOrEqual(position, slot)
  both = And(before, near)
  strictly = Greater(position, slot)
  after = LessOrEqual(position, slot)
  ahead = GreaterOrEqual(later, slot)
  mirrored = LessOrEqual(slot, position)
  hidden = Not(SHOWN)
  numbers = Cast<to = 1>(hidden)
  bias = Mul(numbers, lowest)
  attended = Attention<scale = 0.3>(query, new_key, new_value, bias)
}
"""
DEFAULTS = {"SHOWN": "before", "LOWEST": "-1e9", "VALUE_GRID": "grid", "WIDTH": "8"}


def graphs(options=OnnxOptions(), **words):  # noqa: B008
    """The graph of these words before and after it is rewritten."""
    text = STEP
    for word, replacement in (DEFAULTS | words).items():
        text = text.replace(word, replacement)
    before = parser.parse_model(text)
    onnx.checker.check_model(before, full_check=True)
    changed = ir.from_proto(before)
    optimize(changed, options)
    return before, ir.to_proto(changed)


def inputs(width=8):
    arrays = {name: random(3, 1, 2, width) + number for number, name in enumerate(("key", "value"))}
    caches = {name: random(3, 2, 9, width) - number for number, name in enumerate(("past_key", "past_value"))}
    positions = {"index": np.array([6, 0, 3], "int32"), "other": np.array([1, 2, 0], "int32")}
    return {"query": 2 * random(3, 4, 1, width)} | arrays | caches | positions


def results(model, arrays):
    """The outputs of a graph whose caches are written in place."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in arrays.items()}
    binding = session.io_binding()
    for each in session.get_inputs():
        binding.bind_ortvalue_input(each.name, values[each.name])
    binding.bind_output("attended")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"new_{name}", values[f"past_{name}"])
    session.run_with_iobinding(binding)
    return [each.numpy().copy() for each in binding.get_outputs()]


@pytest.mark.parametrize(("shown", "window"), [("before", -1), ("mirrored", -1), ("both", 3)])
def test_masks_that_the_operator_has(shown, window):
    before, after = graphs(SHOWN=shown)
    (node,) = [each for each in after.graph.node if each.op_type == "GroupQueryAttention"]
    options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    assert options["local_window_size"] == window
    assert not {"ScatterND", "Attention"} & set(operators(after))
    for expected, found in zip(results(before, inputs()), results(after, inputs()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        {"SHOWN": "strictly"},
        {"SHOWN": "after"},
        {"SHOWN": "ahead"},
        {"SHOWN": "near"},
        {"LOWEST": "-5.0"},
        {"VALUE_GRID": "other_grid"},
        {"WIDTH": "12"},
    ],
    ids=lambda words: " ".join(words.values()),
)
def test_what_the_operator_would_compute_otherwise_stays(words):
    found = operators(graphs(**words)[1])
    assert found["Attention"] == 1
    assert found["ScatterND"] == 2
    assert not found["GroupQueryAttention"]


@pytest.mark.parametrize("options", [OnnxOptions(contrib_ops=False), OnnxOptions(cached_attention=False)])
def test_standard_operators_only(options):
    found = operators(graphs(options)[1])
    assert found["Attention"] == 1
    assert not found["GroupQueryAttention"]


def test_with_the_cache_operator_of_opset_24():
    before, after = graphs(OnnxOptions(opset=24))
    assert operators(after)["GroupQueryAttention"] == 1
    assert not operators(after)["TensorScatter"]
    np.testing.assert_allclose(results(after, inputs())[0], results(before, inputs())[0], rtol=1e-5, atol=1e-6)
