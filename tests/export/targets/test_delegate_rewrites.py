"""Rewrites for the GPU delegate: each computes what the graph computed before, of operators that the delegate has."""

import numpy as np
import pytest
from tflite_graphs import Built, cache_update

from keras_transformer.export.targets.tflite_rules import gpu_problems
from keras_transformer.export.tflite.delegates.cache_updates import affine
from keras_transformer.export.tflite.delegates.rewrite import rewrite_for_gpu

RNG = np.random.default_rng(3)


def rewritten(built, **arrays):
    """The outputs before and after; the rewritten graph passes every static rule, and did not before."""
    before = built.run(**arrays)
    assert list(gpu_problems(built.graph))
    rewrite_for_gpu(built.model)
    assert list(gpu_problems(built.graph)) == []
    return before, built.run(**arrays)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_token_is_written_at_a_computed_slot(index):
    arrays = {"cache": floats(1, 2, 5, 3), "new": floats(2, 3), "index": np.array([index], "int32")}
    before, after = rewritten(cache_update(), **arrays)
    expected = arrays["cache"].copy()
    expected[0, :, index] = arrays["new"]
    np.testing.assert_array_equal(after["next"], expected)
    np.testing.assert_array_equal(before["next"], expected)


@pytest.mark.parametrize(("start", "count"), [(0, 2), (1, 3), (3, 2), (0, 5)])
def test_tokens_at_known_slots_are_joined_with_the_rest_of_the_cache(start, count):
    arrays = {"cache": floats(1, 2, 5, 3), "new": floats(count * 2, 3)}
    built = cache_update(count, start=start)
    _, after = rewritten(built, **arrays)
    expected = arrays["cache"].copy()
    expected[0, :, start : start + count] = arrays["new"].reshape(count, 2, 3).swapaxes(0, 1)
    np.testing.assert_array_equal(after["next"], expected)
    assert "MUL" not in built.kinds()


def test_a_scatter_to_other_places_is_a_product():
    """Slots of the second head one further: no cache is written so."""
    built = cache_update(start=0)
    places = next(each for each in built.graph.subgraph.operators if built.graph.kind(each) == "SCATTER_ND").inputs[0]
    buffer = built.graph.model.buffers[built.graph.tensors[int(places)].buffer]
    buffer.data = np.frombuffer(np.array([[0, 0, 0], [0, 1, 1]], "int32").tobytes(), "uint8")
    arrays = {"cache": floats(1, 2, 5, 3), "new": floats(2, 3)}
    before, after = rewritten(built, **arrays)
    assert "CONCATENATION" not in built.kinds()
    np.testing.assert_array_equal(after["next"], before["next"])


def test_sines_of_the_slot_become_a_table():
    built = cache_update(length=2000, width=1)
    number = built.add("CAST", ("index",), "FLOAT32", (1,), "Cast", inDataType=2, outDataType=0)
    shape = built.constant(np.array([1, 1], "int32"))
    column = built.add("RESHAPE", (number, shape), "FLOAT32", (1, 1), "Reshape")
    rates = built.constant(np.array([1.0, 0.1], "float32"))
    angles = built.add("MUL", (column, rates), "FLOAT32", (1, 2), "Mul")
    sines = built.add("SIN", (angles,), "FLOAT32", (1, 2))
    cosines = built.add("COS", (angles,), "FLOAT32", (1, 2))
    built.finish(next=int(built.graph.subgraph.outputs[0]), sines=sines, cosines=cosines)
    arrays = {"cache": floats(1, 2, 2000, 1), "new": floats(2, 1), "index": np.array([1999], "int32")}
    _, after = rewritten(built, **arrays)
    assert {"SIN", "COS"}.isdisjoint(built.kinds())
    angle = (np.float32(1999) * np.array([1.0, 0.1], "float32")).astype("float64")
    np.testing.assert_allclose(after["sines"], np.sin(angle)[None], rtol=1e-6)
    np.testing.assert_allclose(after["cosines"], np.cos(angle)[None], rtol=1e-6)


@pytest.mark.parametrize("kind", ["SIN", "COS"])
def test_other_sines_have_all_digits_of_float32(kind):
    x = np.concatenate([np.linspace(-2000, 2000, 5001), np.linspace(-7, 7, 701)]).astype("float32")
    built = Built(x=("FLOAT32", x.shape))
    built.finish(y=built.add(kind, ("x",), "FLOAT32", x.shape))
    rewrite_for_gpu(built.model)
    assert kind not in built.kinds()
    expected = {"SIN": np.sin, "COS": np.cos}[kind](x.astype("float64"))
    np.testing.assert_allclose(built.run(x=x)["y"], expected, atol=5e-7, rtol=0)


def test_an_input_that_is_returned_is_copied():
    built = Built(mask=("BOOL", (1, 3)), x=("FLOAT32", (3,)))
    doubled = built.add("ADD", ("x", "x"), "FLOAT32", (3,), "Add")
    built.finish(mask=built.tensors["mask"], y=doubled)
    rewrite_for_gpu(built.model)
    outputs = list(built.graph.subgraph.outputs)
    assert built.tensors["mask"] not in outputs
    found = built.run(mask=np.array([[True, False, True]]), x=floats(3))
    np.testing.assert_array_equal(found["mask"], [[True, False, True]])


def test_narrow_choices_are_widened_and_boolean_slices_are_of_numbers():
    built = Built(mask=("BOOL", (2, 4)), x=("FLOAT32", (1, 4)), y=("FLOAT32", (2, 4)))
    chosen = built.add("SELECT_V2", ("mask", "x", "y"), "FLOAT32", (2, 4), "SelectV2")
    bounds = [built.constant(np.array(each, "int32")) for each in ([0, 1], [2, 3], [1, 1])]
    part = built.add("STRIDED_SLICE", ("mask", *bounds), "BOOL", (2, 2), "StridedSlice")
    nothing = built.add("SUB", ("y", "y"), "FLOAT32", (2, 4), "Sub")
    built.finish(chosen=chosen, part=part, nothing=nothing)
    mask, x, y = RNG.random((2, 4)) < 0.5, floats(1, 4), floats(2, 4)
    rewrite_for_gpu(built.model)
    found = built.run(mask=mask, x=x, y=y)
    np.testing.assert_array_equal(found["chosen"], np.where(mask, x, y))
    np.testing.assert_array_equal(found["part"], mask[:, 1:3])
    np.testing.assert_array_equal(found["nothing"], np.zeros((2, 4)))
    slices = [each for each in built.graph.subgraph.operators if built.graph.kind(each) == "STRIDED_SLICE"]
    assert built.model.operatorCodes[slices[0].opcodeIndex].version == 2


def test_slices_keep_their_rank():
    built = Built(x=("FLOAT32", (2, 5, 3)))
    bounds = [built.constant(np.array(each, "int32")) for each in ([0, -2, 1], [2, 0, 3], [1, 1, 1])]
    # x[:, -2, 1:3]
    found = built.add("STRIDED_SLICE", ("x", *bounds), "FLOAT32", (2, 2), "StridedSlice", shrinkAxisMask=2)
    x = floats(2, 5, 3)
    _, after = rewritten(built.finish(y=found), x=x)
    np.testing.assert_array_equal(after["y"], x[:, -2, 1:3])


def test_a_matrix_of_indices_is_looked_up_as_a_list():
    table = floats(7, 4)
    built = Built(ids=("INT32", (2, 3)))
    found = built.add("GATHER", (built.constant(table), "ids"), "FLOAT32", (2, 3, 4), "Gather")
    ids = np.array([[0, 6, 2], [5, 5, 1]], "int32")
    _, after = rewritten(built.finish(y=found), ids=ids)
    np.testing.assert_array_equal(after["y"], table[ids])


def test_each_row_is_looked_up_by_a_product():
    built = Built(x=("FLOAT32", (2, 5, 4)), ids=("INT32", (2, 3)))
    found = built.add("GATHER", ("x", "ids"), "FLOAT32", (2, 3, 4), "Gather", axis=1, batchDims=1)
    x, ids = floats(2, 5, 4), np.array([[0, 4, 2], [3, 3, 1]], "int32")
    _, after = rewritten(built.finish(y=found), x=x, ids=ids)
    np.testing.assert_array_equal(after["y"], np.take_along_axis(x, ids[:, :, None], 1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("FLOAT32", floats(2, 1)), ("INT32", np.array([[3], [-4]], "int32")), ("BOOL", np.array([[True], [False]]))],
)
def test_broadcasts_become_products_and_sums(kind, value):
    built = Built(x=(kind, (2, 1)))
    shape = built.constant(np.array([3, 2, 4], "int64"))
    found = built.add("BROADCAST_TO", ("x", shape), kind, (3, 2, 4))
    _, after = rewritten(built.finish(y=found), x=value)
    np.testing.assert_array_equal(after["y"], np.broadcast_to(value, (3, 2, 4)))


def test_long_integers_become_short_and_constants_are_folded():
    built = Built(x=("INT32", (3,)))
    long = built.add("CAST", ("x",), "INT64", (3,), "Cast", inDataType=2, outDataType=4)
    known = built.add("ADD", (built.constant(np.array([4], "int64")),) * 2, "INT64", (1,), "Add")
    total = built.add("ADD", (long, known), "INT64", (3,), "Add")
    found = built.add("CAST", (total,), "INT32", (3,), "Cast", inDataType=4, outDataType=2)
    _, after = rewritten(built.finish(y=found), x=np.array([1, -5, 7], "int32"))
    np.testing.assert_array_equal(after["y"], [9, 3, 15])
    assert built.kinds().count("ADD") == 1


def test_long_integers_stay_where_one_is_too_large():
    built = Built(x=("INT32", (1,)))
    long = built.add("CAST", ("x",), "INT64", (1,), "Cast", inDataType=2, outDataType=4)
    total = built.add("ADD", (long, built.constant(np.array([2**40], "int64"))), "INT64", (1,), "Add")
    found = built.add("CAST", (total,), "INT32", (1,), "Cast", inDataType=4, outDataType=2)
    built.finish(y=found)
    rewrite_for_gpu(built.model)
    assert [each.reason for each in gpu_problems(built.graph)] == ["type int64"] * 3


def test_a_graph_of_dynamic_shapes_stays():
    built = Built(ids=("INT32", (None, 3)))
    found = built.add("GATHER", (built.constant(floats(7, 4)), "ids"), "FLOAT32", (None, 3, 4), "Gather")
    rewrite_for_gpu(built.finish(y=found).model)
    assert built.kinds() == ["GATHER"]


def test_indices_as_linear_functions_of_a_number():
    built = Built(index=("INT32", (1,)))
    doubled = built.add("MUL", ("index", built.constant(np.array([2], "int32"))), "INT32", (1,), "Mul")
    moved = built.add("ADD", (built.constant(np.array([10, 20], "int32")), doubled), "INT32", (2,), "Add")
    both = built.add("PACK", (moved, built.constant(np.array([7, 8], "int32"))), "INT32", (2, 2), "Pack", axis=1)
    square = built.add("MUL", ("index", "index"), "INT32", (1,), "Mul")
    row = built.add("ADD", (square, built.constant(np.array([1, 2], "int32"))), "INT32", (2,), "Add")
    graph = built.finish(y=both, z=row).graph.find_uses()
    found = affine(graph, both)
    np.testing.assert_array_equal(found.base, [[10, 7], [20, 8]])
    np.testing.assert_array_equal(found.slope, [[2, 0], [2, 0]])
    assert found.source == built.tensors["index"]
    assert affine(graph, row).source == square  # The square itself is the number.


@pytest.mark.parametrize(("kind", "depth"), [("FLOAT32", 2), ("INT32", 1), ("INT32", 3)])
def test_a_scatter_is_a_product(kind, depth):
    shape = (4, 3, 2)
    built = Built(places=("INT32", (2, 2, depth)), rows=(kind, (2, 2, *shape[depth:])))
    sizes = built.constant(np.array(shape, "int32"))
    found = built.add("SCATTER_ND", ("places", "rows", sizes), kind, shape, "ScatterNd")
    places = np.array([[[3, 2, 1], [0, 1, 0]], [[3, 2, 1], [1, 0, 1]]], "int32")[..., :depth]
    rows = (RNG.standard_normal((2, 2, *shape[depth:])) * 100).astype(kind.lower())
    _, after = rewritten(built.finish(y=found), places=places, rows=rows)
    expected = np.zeros(shape, kind.lower())
    np.add.at(expected, tuple(np.moveaxis(places, -1, 0)), rows)
    np.testing.assert_array_equal(after["y"], expected)


@pytest.mark.parametrize(
    ("shape", "axis", "kind"),
    [((5,), 0, "FLOAT32"), ((3, 4), 0, "INT32"), ((2, 3, 4), 1, "INT32"), ((3, 2), -2, "FLOAT32")],
)
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_are_of_floats_along_an_inner_axis(shape, axis, kind, exclusive):
    built = Built(x=(kind, shape))
    inputs = ("x", built.constant(np.array(axis, "int32")))
    found = built.add("CUMSUM", inputs, kind, shape, "Cumsum", exclusive=exclusive)
    x = (RNG.standard_normal(shape) * 9).astype(kind.lower())
    _, after = rewritten(built.finish(y=found), x=x)
    expected = np.cumsum(x, axis)
    np.testing.assert_allclose(after["y"], expected - x if exclusive else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("axis", "shape"), [(-1, (3, 5)), (0, (5, 3))])
def test_rows_with_one_true_value_are_a_comparison(axis, shape):
    built = Built(x=("INT32", (3,)))
    rest = [built.constant(each) for each in (np.int32(5), np.array(True), np.array(False))]
    found = built.add("ONE_HOT", ("x", *rest), "BOOL", shape, "OneHot", axis=axis)
    x = np.array([4, 0, 7], "int32")
    _, after = rewritten(built.finish(y=found), x=x)
    expected = x[:, None] == np.arange(5)
    np.testing.assert_array_equal(after["y"], expected if axis else expected.T)


@pytest.mark.parametrize(("kind", "length"), [("FLOAT32", 6), ("FLOAT32", 1), ("INT32", 8), ("INT32", 3)])
def test_the_largest_of_rows_of_any_length(kind, length):
    count = min(3, length)
    built = Built(x=(kind, (2, length)))
    values = built.add("TOPK_V2", ("x", built.constant(np.int32(count))), kind, (2, count), "TopKV2")
    places = built.graph.add_tensor("places", "INT32", (2, count))
    built.graph.subgraph.operators[-1].outputs = [values, places]
    x = -RNG.permutation(2 * length).reshape(2, length).astype(kind.lower())
    _, after = rewritten(built.finish(values=values, places=places), x=x)
    order = np.argsort(-x, axis=1)[:, :count]
    np.testing.assert_array_equal(after["places"], order)
    np.testing.assert_array_equal(after["values"], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(("kind", "value"), [("FLOAT32", None), ("INT32", None), ("INT32", 7)])
def test_padding_is_of_floats_of_rank_4(kind, value):
    built = Built(x=(kind, (2, 3)))
    inputs = ["x", built.constant(np.array([[0, 0], [1, 2]], "int32"))]
    inputs += [] if value is None else [built.constant(np.array(value, kind.lower()))]
    op = "PAD" if value is None else "PADV2"
    found = built.add(op, inputs, kind, (2, 6), "Pad" if value is None else "PadV2")
    x = (RNG.standard_normal((2, 3)) * 9).astype(kind.lower())
    _, after = rewritten(built.finish(y=found), x=x)
    np.testing.assert_array_equal(after["y"], np.pad(x, [(0, 0), (1, 2)], constant_values=value or 0))


@pytest.mark.parametrize(
    ("first", "second", "turned"),
    [((2, 3, 4, 5), (1, 5, 6), 0), ((2, 3, 4, 5), (2, 1, 6, 5), 1), ((4, 5), (3, 5, 2), 0)],
)
def test_products_of_broadcast_batches(first, second, turned):
    x, z = floats(*first), floats(*second)
    expected = x @ (z.swapaxes(-1, -2) if turned else z)
    built = Built(x=("FLOAT32", first), z=("FLOAT32", second))
    found = built.add("BATCH_MATMUL", ("x", "z"), "FLOAT32", expected.shape, "BatchMatMul", adjY=bool(turned))
    _, after = rewritten(built.finish(y=found), x=x, z=z)
    np.testing.assert_allclose(after["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("MAXIMUM", None, lambda x: x),
        ("SUB", "Sub", np.zeros_like),
        ("ADD", "Add", lambda x: 2 * x),
        ("MUL", "Mul", np.square),
    ],
)
def test_no_operator_reads_a_tensor_twice(kind, options, expected):
    built = Built(x=("FLOAT32", (2, 3)))
    found = built.add(kind, ("x", "x"), "FLOAT32", (2, 3), options)
    x = floats(2, 3)
    _, after = rewritten(built.finish(y=found), x=x)
    np.testing.assert_allclose(after["y"], expected(x), rtol=1e-6)
