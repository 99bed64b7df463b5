"""Rewrites of ONNX graphs for fp16: each gives the numbers of the graph before in float32, and in fp16 nearly those."""

import numpy as np
import pytest
from half_floats import FLOAT, graph, rewritten, run
from onnx import TensorProto

from keras_transformer.export.onnx.delegates.half_precision import within_range

RNG = np.random.default_rng(7)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def merged_weights():
    """The logarithm of the sum of a past weight, which may be absent, and a weight; and whether there was a past."""
    nodes = [
        ("Greater", ("is_begun", "zero"), "begun"),
        ("Where", ("begun", "past", "absent"), "log"),
        ("Sub", ("log", "decay"), "faded"),
        ("Max", ("faded", "key"), "highest"),
        ("Sub", ("faded", "highest"), "first_log"),
        ("Sub", ("key", "highest"), "second_log"),
        ("Exp", ("first_log",), "first"),
        ("Exp", ("second_log",), "second"),
        ("Add", ("first", "second"), "total"),
        ("Log", ("total",), "total_log"),
        ("Add", ("highest", "total_log"), "next"),
        ("Greater", ("faded", "threshold"), "had_past"),
        ("Add", ("log", "absent"), "twice"),
        ("Sub", ("twice", "absent"), "back"),
        ("Exp", ("back",), "share"),
    ]
    constants = {"zero": 0.0, "absent": -1e30, "threshold": -5e29, "decay": 0.5}
    return graph(
        nodes,
        {"is_begun": [1, 1], "past": [1, 4], "key": [1, 4]},
        {"next": FLOAT, "had_past": TensorProto.BOOL, "share": FLOAT},
        {name: np.array(value, "float32") for name, value in constants.items()},
    )


@pytest.mark.parametrize("begun", [0.0, 1.0])
def test_absent_weights_stay_absent_within_the_range_of_fp16(begun):
    model, arrays = merged_weights()
    inputs = {"is_begun": np.full((1, 1), begun, "float32"), "past": floats(1, 4), "key": floats(1, 4)}
    before = run(model, arrays, inputs)
    model, arrays = rewritten("qnn", model, arrays)
    assert max(abs(float(array)) for array in arrays.values()) == 30000
    after, halved = run(model, arrays, inputs), run(model, arrays, inputs, half=True)
    past = inputs["past"] - 0.5 if begun else np.full((1, 4), -np.inf, "float32")
    np.testing.assert_allclose(after["next"], np.logaddexp(past, inputs["key"]), atol=1e-6)
    np.testing.assert_array_equal(after["next"], before["next"])
    np.testing.assert_array_equal(after["had_past"], np.full((1, 4), bool(begun)))
    np.testing.assert_array_equal(before["had_past"], after["had_past"])
    np.testing.assert_allclose(halved["next"], before["next"], atol=4e-3)
    np.testing.assert_array_equal(halved["had_past"], before["had_past"])


def test_without_the_rewrite_an_absent_weight_is_no_number_in_fp16():
    model, arrays = merged_weights()
    inputs = {"is_begun": np.zeros((1, 1), "float32"), "past": floats(1, 4), "key": floats(1, 4)}
    assert np.isnan(run(model, arrays, inputs, half=True)["share"]).all()


def test_large_numbers_keep_their_order_and_small_ones_their_value():
    given = np.array([-np.inf, -3.4e38, -1e30, -5e29, -2.0, 0.0, 65504.0, 1e9], "float32")
    np.testing.assert_allclose(
        within_range(given), [-3.4028235e38 / 1e39 * 3e4, -1.02e4, -3e4, -1.5e4, -2.0, 0.0, 65504.0, 3e4], rtol=1e-5
    )


def norm(square, division, scale_first=False):
    """`x / √(mean(x²) + 1e-6)` in several spellings."""
    nodes = [
        ("Mul", ("x", "x"), "squares") if square == "Mul" else ("Pow", ("x", "two"), "squares"),
        ("ReduceMean", ("squares", "axes"), "mean", {"keepdims": 1}),
        ("Add", ("epsilon", "mean") if scale_first else ("mean", "epsilon"), "sum"),
        ("Sqrt", ("sum",), "root"),
    ]
    if division == "Div":
        nodes.append(("Div", ("x", "root"), "y"))
    else:
        factors = ("inverse", "x") if scale_first else ("x", "inverse")
        nodes += [("Reciprocal", ("root",), "inverse"), ("Mul", factors, "y")]
    constants = {"axes": np.array([-1]), "epsilon": np.array(1e-6, "float32"), "two": np.array(2, "float32")}
    return graph(nodes, {"x": [2, 3, 8]}, {"y": FLOAT}, constants)


@pytest.mark.parametrize(
    ("square", "division", "first"), [("Mul", "Mul", False), ("Pow", "Mul", True), ("Mul", "Div", True)]
)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 400.0])
def test_a_norm_without_weights_is_one_operator(square, division, first, scale):
    model, arrays = norm(square, division, first)
    x = {"x": floats(2, 3, 8) * np.float32(scale)}
    before = run(model, arrays, x)["y"]
    model, arrays = rewritten("qnn", model, arrays)
    assert [node.op_type for node in model.graph.node] == ["RMSNormalization"]
    assert len(arrays) == 1
    exact = x["x"].astype("float64")
    exact = exact / np.sqrt(np.square(exact).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run(model, arrays, x)["y"], exact, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(before, exact, rtol=2e-6, atol=1e-6)


def test_squares_of_small_and_large_numbers_are_lost_in_fp16_without_it():
    values = np.linspace(-2, 2, 48, dtype="float32").reshape(2, 3, 8)
    for scale, kept in ((3e-4, False), (1.0, True), (400.0, False)):
        model, arrays = norm("Mul", "Mul")
        whole, half = (run(model, arrays, {"x": values * np.float32(scale)}, half=half)["y"] for half in (False, True))
        assert (np.abs(half / whole - 1).max() < 2e-3) == kept


@pytest.mark.parametrize("change", ["axis", "other", "read"])
def test_what_is_no_norm_of_the_last_axis_stays(change):
    model, arrays = norm("Mul", "Mul")
    if change == "axis":
        arrays["axes"] = np.array([1])
    elif change == "other":
        model.graph.node[-1].input[0] = "sum"
    else:
        model.graph.output.add(name="root").type.tensor_type.elem_type = FLOAT
    model, arrays = rewritten("qnn", model, arrays)
    assert "RMSNormalization" not in {node.op_type for node in model.graph.node}


def test_exponentials_have_arguments_of_80_below_zero_at_most():
    model, arrays = graph([("Exp", ("x",), "y")], {"x": [6]}, {"y": FLOAT}, {})
    x = {"x": np.array([-3e4, -200.0, -90.0, -16.0, 0.0, 3.0], "float32")}
    before = run(model, arrays, x)["y"]
    model, arrays = rewritten("qnn", model, arrays)
    assert [node.op_type for node in model.graph.node] == ["Max", "Exp"]
    after = run(model, arrays, x)["y"]
    np.testing.assert_array_equal(after[3:], before[3:])
    np.testing.assert_allclose(after[:3], np.exp(-80.0), rtol=1e-5)


def test_softplus_is_written_with_a_logarithm():
    model, arrays = graph([("Softplus", ("x",), "y")], {"x": [7]}, {"y": FLOAT}, {})
    x = {"x": np.array([-200.0, -5.0, -0.5, 0.0, 0.5, 20.0, 300.0], "float32")}
    model, arrays = rewritten("qnn", model, arrays)
    assert "Softplus" not in {node.op_type for node in model.graph.node}
    exact = np.logaddexp(0.0, x["x"].astype("float64"))
    np.testing.assert_allclose(run(model, arrays, x)["y"], exact, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(run(model, arrays, x, half=True)["y"], exact, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("order", [("x", "gate"), ("gate", "x")])
def test_a_sigmoid_times_its_argument_is_written_with_tanh(order):
    model, arrays = graph([("Sigmoid", ("x",), "gate"), ("Mul", order, "y")], {"x": [9]}, {"y": FLOAT}, {})
    x = {"x": np.array([-30.0, -8.0, -1.0, -0.1, 0.0, 0.1, 1.0, 8.0, 300.0], "float32")}
    before = run(model, arrays, x)["y"]
    model, arrays = rewritten("qnn", model, arrays)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Tanh", "Mul", "Add"]
    exact = x["x"].astype("float64") / (1 + np.exp(-x["x"].astype("float64")))
    np.testing.assert_allclose(run(model, arrays, x)["y"], exact, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(before, exact, rtol=1e-6, atol=2e-6)  # The runtime's sigmoid is 6e-7 off at -8.
    np.testing.assert_allclose(run(model, arrays, x, half=True)["y"], exact, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("change", ["factor", "read"])
def test_other_sigmoids_stay(change):
    other = "z" if change == "factor" else "x"
    model, arrays = graph(
        [("Sigmoid", ("x",), "gate"), ("Mul", (other, "gate"), "y")],
        {"x": [9], "z": [9]},
        {"y": FLOAT} if change == "factor" else {"y": FLOAT, "gate": FLOAT},
        {},
    )
    model, arrays = rewritten("qnn", model, arrays)
    assert [node.op_type for node in model.graph.node] == ["Sigmoid", "Mul"]


def rotary():
    """Sines and cosines of the rotation of the token at a slot, with three rates."""
    nodes = [
        ("Reshape", ("cache_index", "column"), "positions"),
        ("Cast", ("positions",), "numbers", {"to": FLOAT}),
        ("Unsqueeze", ("numbers", "last"), "grown"),
        ("Mul", ("grown", "rates"), "angles"),
        ("Sin", ("angles",), "sines"),
        ("Cos", ("angles",), "cosines"),
    ]
    constants = {"column": np.array([-1, 1]), "last": np.array([2]), "rates": np.array([1.0, 0.05, 1e-4], "float32")}
    model, arrays = graph(nodes, {"cache_index": [1]}, {"sines": FLOAT, "cosines": FLOAT}, constants)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    return model, arrays


@pytest.mark.parametrize("index", [0, 23, 1999])
def test_sines_of_a_slot_are_looked_up(index):
    model, arrays = rotary()
    inputs = {"cache_index": np.array([index], "int32")}
    before = run(model, arrays, inputs)
    model, arrays = rewritten("qnn", model, arrays, slots=2000)
    assert [node.op_type for node in model.graph.node] == ["Gather", "Reshape"] * 2
    after, halved = run(model, arrays, inputs), run(model, arrays, inputs, half=True)
    angle = (np.float32(index) * np.array([1.0, 0.05, 1e-4], "float32")).astype("float64")
    for name, function in (("sines", np.sin), ("cosines", np.cos)):
        assert after[name].shape == (1, 1, 3)
        np.testing.assert_allclose(after[name][0, 0], function(angle), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(after[name], before[name], atol=1e-6)
        np.testing.assert_allclose(halved[name], after[name], atol=5e-4)


def test_sines_of_fp16_are_wrong_far_from_the_start_without_it():
    model, arrays = rotary()
    inputs = {"cache_index": np.array([1999], "int32")}
    whole, half = (run(model, arrays, inputs, half=half)["sines"] for half in (False, True))
    assert np.abs(half - whole).max() > 0.01


@pytest.mark.parametrize("change", ["slots", "other"])
def test_sines_of_something_else_are_computed(change):
    model, arrays = rotary()
    if change == "other":
        model.graph.input[0].name = "positions_of_tokens"
        model.graph.node[0].input[0] = "positions_of_tokens"
    model, arrays = rewritten("qnn", model, arrays, slots=None if change == "slots" else 2000)
    assert {"Sin", "Cos"} <= {node.op_type for node in model.graph.node}
