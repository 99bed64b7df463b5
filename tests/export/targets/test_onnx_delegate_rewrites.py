"""Rewrites of ONNX graphs for accelerators: each computes what the graph did before, of other operators."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.delegates.sines import with_sine_polynomials, with_sine_tables
from keras_transformer.export.onnx.delegates.supported_types import with_integer_operators, with_supported_types
from keras_transformer.export.onnx.delegates.webgpu import with_padded_channels, without_one_hots

HEAD = '<ir_version: 9, opset_import: ["" : 20]>'
# Angles of the positions of two tokens from a slot of the cache on.
ROTARY = f"""{HEAD}
rotary (int32[1] cache_index, float[1, 2, 3] x) => (float[1, 2, 3] y)
<int64[1] last = {{-1}}, float[2] offsets = {{0, 1}}, float[3] rates = {{1, 0.1, 0.01}}> {{
  slot = Cast <to = 1> (cache_index)
  slots = Add (slot, offsets)
  column = Unsqueeze (slots, last)
  angles = Mul (column, rates)
  sine = Sin (angles)
  cosine = Cos (angles)
  product = Mul (x, sine)
  y = Add (product, cosine)
}}
"""
KNOWN = f"""{HEAD}
known (float[1, 3] x) => (float[1, 3] y)
<float[3] angles = {{-300.5, 0.25, 2000}}> {{
  sine = Sin (angles)
  y = Mul (x, sine)
}}
"""
COMPUTED = f"""{HEAD}
computed (float[4000] x) => (float[4000] sine, float[4000] cosine) {{
  sine = Sin (x)
  cosine = Cos (x)
}}
"""


def operators(model):
    return {node.op_type for node in model.graph.node}


def run(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, feeds)


def rewritten(text, *rules, slots=None):
    """The model before and after, with the constants that the rules made."""
    before = parser.parse_model(text)
    return before, changed(before, *rules, slots=slots)


def changed(model, *rules, slots=None):
    """The model after some rules."""
    found = ir.from_proto(model)
    editor = Editor(found, slots)
    for rule in rules:
        rule(editor)
    after = ir.to_proto(found)
    onnx.checker.check_model(after, full_check=True)
    return after


@pytest.mark.parametrize("slot", [0, 1, 511])
def test_rotary_angles_become_a_table_of_the_slots(slot):
    before, after = rewritten(ROTARY, with_sine_tables, slots=512)
    assert operators(after) == {"Gather", "Reshape", "Mul", "Add"}
    tables = [each for each in after.graph.initializer if each.dims[0] == 512]
    assert [list(each.dims) for each in tables] == [[512, 6], [512, 6]]
    feeds = {"cache_index": np.array([slot], "int32"), "x": np.array([[[1, 2, 3], [4, 5, 6]]], "float32")}
    # The formula in float64, of angles in float32.
    rates = np.array([1, 0.1, 0.01], "float32")
    angles = (np.array([[slot], [slot + 1]], "float32") * rates).astype("float64")
    expected = feeds["x"] * np.sin(angles) + np.cos(angles)
    np.testing.assert_allclose(run(after, feeds)[0], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(run(before, feeds)[0], expected, rtol=0, atol=1e-6)


def test_an_index_of_unknown_range_keeps_its_sine():
    for text, slots in ((ROTARY, None), (ROTARY, 2**22), (ROTARY.replace("cache_index", "other"), 512)):
        before, after = rewritten(text, with_sine_tables, slots=slots)
        assert operators(after) == operators(before)


def test_sines_of_constants_are_constants():
    before, after = rewritten(KNOWN, with_sine_tables)
    assert operators(after) == {"Mul"}
    assert {each.name for each in after.graph.initializer} == {"sine"}
    x = np.ones((1, 3), "float32")
    np.testing.assert_allclose(run(after, {"x": x})[0], np.sin(x * [-300.5, 0.25, 2000]), rtol=0, atol=6e-8)


def test_a_constant_that_is_an_output_is_not_replaced():
    text = KNOWN.replace("(float[1, 3] y)", "(float[3] sine, float[1, 3] y)")
    _, after = rewritten(text, with_sine_tables)
    assert operators(after) == {"Sin", "Mul"}


@pytest.mark.parametrize("largest", [4.0, 3000.0])
def test_sines_of_computed_angles_are_polynomials(largest):
    _, after = rewritten(COMPUTED, with_sine_tables, with_sine_polynomials)
    assert operators(after) == {"Mul", "Add", "Sub", "Floor"}
    x = np.linspace(-largest, largest, 4000, dtype="float32")
    sine, cosine = run(after, {"x": x})
    np.testing.assert_allclose(sine, np.sin(x.astype("float64")), rtol=0, atol=3e-7)
    np.testing.assert_allclose(cosine, np.cos(x.astype("float64")), rtol=0, atol=3e-7)


def test_a_graph_with_branches_stays_as_it_is():
    """Their bodies read tensors of the graph around them."""
    text = f"""{HEAD}
    branches (bool[1] first, float[2] x) => (float[2] y) <float[2] read = {{3, 4}}> {{
      one = Sin (x)
      y = If (first) <
        then_branch = then () => (float[2] a) {{ a = Add (one, read) }},
        else_branch = else () => (float[2] b) {{ b = Sin (read) }}
      >
    }}
    """
    before, after = rewritten(text, with_sine_tables, with_sine_polynomials, without_one_hots)
    assert ir.to_proto(ir.from_proto(before)).graph.node == after.graph.node


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_rows_are_comparisons(axis):
    shape = {-1: "2, 3, 4", 0: "4, 2, 3", 1: "2, 4, 3"}[axis]
    text = f"""{HEAD}
    chosen (int64[2, 3] ids) => (float[{shape}] y) <int64[1] depth = {{4}}, float[2] values = {{-1.5, 2}}> {{
      y = OneHot <axis = {axis}> (ids, depth, values)
    }}
    """
    before, after = rewritten(text, without_one_hots)
    assert operators(after) == {"Cast", "Unsqueeze", "Equal", "Where"}
    feeds = {"ids": np.array([[0, 3, 4], [1, 1, 2]])}
    expected = np.where(np.expand_dims(feeds["ids"], -1) == np.arange(4), 2, -1.5)
    expected = np.moveaxis(expected, -1, axis)
    for model in (before, after):
        np.testing.assert_array_equal(run(model, feeds)[0], expected)


def test_a_one_hot_of_unknown_depth_stays():
    text = f"""{HEAD}
    chosen (int64[2] ids, int64[1] depth) => (float[2, n] y) <float[2] values = {{0, 1}}> {{
      y = OneHot (ids, depth, values)
    }}
    """
    before, after = rewritten(text, without_one_hots)
    assert operators(after) == operators(before)


def test_booleans_move_as_numbers_and_distances_are_choices():
    before, after = rewritten(
        f"""{HEAD}
        moved (int32[4] x, float[4] z) => (int32[4] distance, bool[2] part, bool[4] copy, float[4] size)
        <int32 two = {{2}}, int64[1] begin = {{3}}, int64[1] end = {{-5}}, int64[1] axis = {{0}}, int64[1] step = {{-2}}> {{
          difference = Sub (x, two)
          distance = Abs (difference)
          is_large = Greater (x, two)
          part = Slice (is_large, begin, end, axis, step)
          copy = Identity (is_large)
          size = Abs (z)
        }}
        """,
        with_supported_types,
    )
    of_floats = [each for each in after.graph.node if each.op_type == "Abs"]
    assert [each.input[0] for each in of_floats] == ["z"]
    assert "Identity" not in operators(after)
    [slicing] = [each for each in after.graph.node if each.op_type == "Slice"]
    [source] = [each for each in after.graph.node if each.output[0] == slicing.input[0]]
    assert source.op_type == "Cast"
    feeds = {"x": np.array([-7, 9, 2, 5], "int32"), "z": np.array([-1, 0, 2, -0.5], "float32")}
    for pair in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_array_equal(*pair)
    assert run(after, feeds)[0].tolist() == [9, 7, 0, 3]
    assert run(after, feeds)[1].tolist() == [True, True]


def test_slices_of_integers_are_lookups_and_joined_booleans_numbers():
    before, after = rewritten(
        f"""{HEAD}
        parts (int32[3, 5] x) => (int32[2, 2] corner, int32[3, 5] turned, bool[3, 7] joined)
        <int64[2] begins = {{-1, 1}}, int64[2] ends = {{-9, 4}}, int64[2] axes = {{0, -1}}, int64[2] steps = {{-2, 2}},
         int64[1] last = {{4}}, int64[1] before = {{-6}}, int64[1] axis = {{1}}, int64[1] back = {{-1}}, int32 two = {{2}},
         bool[3, 2] known = {{1, 0, 0, 1, 1, 1}}> {{
          corner = Slice (x, begins, ends, axes, steps)
          turned = Slice (x, last, before, axis, back)
          is_large = Greater (x, two)
          joined = Concat <axis = -1> (known, is_large)
        }}
        """,
        with_supported_types,
    )
    assert "Slice" not in operators(after)
    [joining] = [each for each in after.graph.node if each.op_type == "Concat"]
    makers = {each.output[0]: each.op_type for each in after.graph.node}
    assert [makers[name] for name in joining.input] == ["Cast", "Cast"]
    x = np.arange(15, dtype="int32").reshape(3, 5) - 4
    expected = [x[[2, 0]][:, [1, 3]], x[:, ::-1], np.concatenate([[[1, 0], [0, 1], [1, 1]], x > 2], 1).astype(bool)]
    for model in (before, after):
        for found, array in zip(run(model, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(found, array)


def test_the_indices_of_the_largest_are_small_integers():
    before, after = rewritten(
        f"""{HEAD}
        largest (float[2, 5] x) => (int32[2, 3] places, int32[2, 3] whole) <int64[1] count = {{3}}> {{
          values, indices = TopK (x, count)
          places = Cast <to = 6> (indices)
          whole = Cast <to = 6> (values)
        }}
        """,
        with_supported_types,
    )
    assert sorted(each.op_type for each in after.graph.node) == ["Cast", "Gather", "TopK"]
    feeds = {"x": np.array([[0.5, -2, 3, 1, 0], [7, 8, 9, 10, 11]], "float32")}
    for model in (before, after):
        assert [each.tolist() for each in run(model, feeds)] == [[[2, 3, 0], [4, 3, 2]], [[3, 1, 0], [11, 10, 9]]]


def test_halves_are_rounded_to_even_numbers():
    before, after = rewritten(f"{HEAD} rounded (float[9] x) => (float[9] y) {{ y = Round (x) }}", with_supported_types)
    assert "Round" not in operators(after)
    feeds = {"x": np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, -7.2, 8388607.5], "float32")}
    for model in (before, after):
        assert run(model, feeds)[0].tolist() == [-2, -2, 0, 0, 2, 2, 0, -7, 8388608]


def test_booleans_are_repeated_turned_and_joined_as_others():
    before, after = rewritten(
        f"""{HEAD}
        others (int32[2, 3] x) => (bool[3, 2] turned, bool[2, 6] repeated, bool[2, 3] either)
        <int64[2] repeats = {{1, 2}}, int32 two = {{2}}, int32 one = {{-1}}> {{
          is_large = Greater (x, two)
          is_small = Less (x, one)
          turned = Transpose <perm = [1, 0]> (is_large)
          repeated = Tile (is_large, repeats)
          either = Or (is_large, is_small)
        }}
        """,
        with_supported_types,
    )
    assert "Or" not in operators(after)
    makers = {each.output[0]: each.op_type for each in after.graph.node}
    moves = [each for each in after.graph.node if each.op_type in ("Tile", "Transpose")]
    assert [makers[each.input[0]] for each in moves] == ["Cast", "Cast"]
    x = np.array([[3, -2, 0], [1, 7, -9]], "int32")
    expected = [(x > 2).T, np.tile(x > 2, (1, 2)), (x > 2) | (x < -1)]
    for model in (before, after):
        for found, array in zip(run(model, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "channels, out, pads", [(6, 8, True), (9, 4, True), (12, 8, False), (3, 8, False), (6, 7, False)]
)
def test_channels_that_webgpu_computes_wrong_are_padded(channels, out, pads):
    random = np.random.default_rng(0)
    kernel = numpy_helper.from_array(random.normal(size=(out, channels, 1, 3)).astype("float32"), "kernel")
    text = f"""{HEAD}
    convolved (float[2, {channels}, 1, 5] x, float[{out}] bias) => (float[2, {out}, 1, 2] y) {{
      y = Conv <strides = [1, 2]> (x, kernel, bias)
    }}
    """
    before = parser.parse_model(text)
    before.graph.initializer.append(kernel)
    after = changed(before, with_padded_channels)
    assert ("Pad" in operators(after)) == pads
    feeds = {
        "x": random.normal(size=(2, channels, 1, 5)).astype("float32"),
        "bias": random.normal(size=out).astype("float32"),
    }
    np.testing.assert_allclose(run(after, feeds)[0], run(before, feeds)[0], rtol=1e-5, atol=1e-5)


def test_integers_are_padded_by_joining_and_negated_by_subtracting():
    before, after = rewritten(
        f"""{HEAD}
        padded (int32[2, 3] x, float[2] z) => (int32[3, 6] wide, int32[2, 3] negative, float[3] longer, float[2] less)
        <int64[4] around = {{1, 2, 0, 1}}, int32 seven = {{7}}, int64[2] one = {{0, 1}}> {{
          wide = Pad (x, around, seven)
          negative = Neg (x)
          longer = Pad (z, one)
          less = Neg (z)
        }}
        """,
        with_integer_operators,
    )
    kept = {each.input[0] for each in after.graph.node if each.op_type in ("Pad", "Neg")}
    assert kept == {"z"}
    x = np.array([[3, -2, 0], [1, 7, -9]], "int32")
    feeds = {"x": x, "z": np.array([1.5, -2], "float32")}
    expected = [np.pad(x, ((1, 0), (2, 1)), constant_values=7), -x, [1.5, -2, 0], [-1.5, 2]]
    for model in (before, after):
        for found, array in zip(run(model, feeds), expected, strict=True):
            np.testing.assert_array_equal(found, array)
