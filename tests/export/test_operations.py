"""Each operation of the table alone: its functions in TensorFlow, and the files of its cases in their runtimes."""

import importlib
import json
import math
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from variants import exhaustive_but

from keras_transformer.export.errors import ExportError, InvalidModelError, UnknownFormatError, UnsupportedOpError

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
if keras.backend.backend() == "tensorflow":
    from operation_cases import CASES, FIRST

    from keras_transformer.export import export, load, register_lowering
    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.export.data.export_spec import Probe, Signature
    from keras_transformer.export.graph.repeated_layers import RepeatedLayers
    from keras_transformer.export.graph.traced_graph import trace
    from keras_transformer.export.operations import table
    from keras_transformer.export.operations.families.arrays import slices
    from keras_transformer.export.operations.families.numbers import (
        arithmetic,
        bits,
        exponentials,
        special,
        trigonometry,
    )
    from keras_transformer.export.operations.lowering import lowered
    from keras_transformer.export.operations.table import OPERATIONS
    from keras_transformer.export.verification.graph_execution import GraphExecution
else:
    CASES = FIRST = {}

WORKER = pathlib.Path(__file__).with_name("operation_worker.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory, environment_of):
    out = tmp_path_factory.mktemp("operations") / "results.json"
    subprocess.run(
        [sys.executable, str(WORKER), str(out)], check=True, env=environment_of("files"), capture_output=True
    )
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("kind", exhaustive_but(["dynamic", "fixed"], "dynamic"))
@pytest.mark.parametrize("format", ["tflite", "onnx"])
@pytest.mark.parametrize(("operation", "name"), exhaustive_but(CASES, *FIRST))
def test_files_compute_what_tensorflow_computes(files, operation, name, format, kind):
    case, found = CASES[operation, name], files["|".join((operation, name, format, kind))]
    if format in case.refused:
        assert found.startswith("UnsupportedOpError"), found
    else:
        assert not isinstance(found, str), found
        assert found <= case.bound


def nodes_of(graph_def):
    yield from graph_def.node
    for each in graph_def.library.function:
        yield from each.node_def


def traced(function, arrays, shapes=None):
    """The `TracedGraph` of a function of arrays, of any shapes unless some are given."""
    names = [f"input_{number}" for number in range(len(arrays))]

    def called(tensors):
        results = function(*(tensors[name] for name in names))
        results = results if isinstance(results, (list, tuple)) else [results]
        return {f"output_{number}": each for number, each in enumerate(results)}

    given = dict(zip(names, arrays, strict=True))
    outputs = called({name: tf.constant(each) for name, each in given.items()})
    probe = Probe(given, "given", {name: each.numpy() for name, each in outputs.items()})
    specs = [
        ArraySpec(
            name,
            array.dtype.name,
            tuple(shape),
            tuple(None if size else f"{name}_{axis}" for axis, size in enumerate(shape)),
        )
        for name, array, shape in zip(names, arrays, shapes or [(None,) * each.ndim for each in arrays], strict=True)
    ]
    return trace("serve", Signature(called, tuple(specs), [probe]), (), RepeatedLayers(()))


def ran(graph, arrays):
    """What a `TracedGraph` computes in TensorFlow."""
    tensors = dict(zip(graph.inputs, map(tf.constant, arrays), strict=True))
    return [each.numpy() for each in GraphExecution(graph.graph_def)(tensors, list(graph.outputs.values()))]


def lowered_graph(function, format, *arrays):
    graph = traced(function, arrays)
    return lowered(graph, format, lambda op, node: node)


@pytest.mark.exhaustive
def test_every_operation_has_a_case_that_contains_it():
    missing = set(OPERATIONS)
    for (operation, _), case in CASES.items():
        found = {node.op for node in nodes_of(traced(case.function, case.arrays, case.shapes).graph_def)}
        assert operation in found, operation
        missing -= found
    assert not missing


SIZES = np.concatenate([[0.0], np.logspace(-30, 30, 121), np.linspace(0.02, 12, 200)]).astype("float32")
SIGNED = np.concatenate([SIZES, -SIZES, [np.inf, -np.inf, np.nan]]).astype("float32")
UNIT = np.concatenate([np.linspace(-1, 1, 801), SIZES[SIZES < 1], [1.5, np.nan]]).astype("float32")


def erfinv_of_rounded_sum(x):
    """TensorFlow computes a quantile at `(x + 1) / 2`, which it rounds."""
    return math.sqrt(0.5) * scipy.special.ndtri(
        (x.astype("float32") * np.float32(0.5) + np.float32(0.5)).astype("float64")
    )


FUNCTIONS = {
    "log1p": ("exponentials", "log1p", np.log1p, SIGNED),
    "expm1": ("exponentials", "expm1", np.expm1, SIGNED[np.abs(SIGNED) < 80]),
    "softplus": ("exponentials", "softplus", lambda x: np.logaddexp(0, x), SIGNED[np.abs(SIGNED) < 80]),
    "erf": ("special", "error_function", scipy.special.erf, SIGNED),
    "erfinv": ("special", "inverse_error_function", erfinv_of_rounded_sum, np.tanh(SIGNED[np.abs(SIGNED) < 3])),
    "sinh": ("trigonometry", "hyperbolic_sine", np.sinh, SIGNED[np.abs(SIGNED) < 80]),
    "cosh": ("trigonometry", "hyperbolic_cosine", np.cosh, SIGNED[np.abs(SIGNED) < 80]),
    "asinh": ("trigonometry", "inverse_hyperbolic_sine", np.arcsinh, SIGNED),
    "acosh": ("trigonometry", "inverse_hyperbolic_cosine", np.arccosh, 1 + np.float32(0.25) * SIZES),
    "atanh": ("trigonometry", "inverse_hyperbolic_tangent", np.arctanh, UNIT),
    "acos": ("trigonometry", "arccosine", np.arccos, UNIT[np.abs(UNIT) < 0.999]),
    "asin": ("trigonometry", "arcsine", np.arcsin, UNIT),
    "atan": ("trigonometry", "arctangent", np.arctan, SIGNED),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_their_digits_at_any_size(name):
    module, function, reference, x = FUNCTIONS[name]
    families = {"exponentials": exponentials, "special": special, "trigonometry": trigonometry}
    found = getattr(families[module], function)(tf.constant(x)).numpy()
    with np.errstate(all="ignore"):
        expected = reference(x.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=8e-7, atol=1e-37)


def test_erfc_of_large_arguments_is_that_of_its_square_rounded():
    x = np.linspace(-6, 9, 301).astype("float32")
    found = special.complementary_error_function(tf.constant(x)).numpy()
    expected = scipy.special.erfc(x.astype("float64"))
    # The square is rounded before its exponential is taken.
    np.testing.assert_allclose(found, expected, rtol=4e-7 + 1.2e-7 * 81)
    near = np.abs(x) < 1
    np.testing.assert_allclose(found[near], expected[near], rtol=8e-7)


def test_bits_of_integers_are_those_of_numpy():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 10_000, "int64").astype("int32")
    y = x[::-1].copy()
    np.testing.assert_array_equal(bits.bits_in_both(tf.constant(x), tf.constant(y)), x & y)
    np.testing.assert_array_equal(bits.inverted(tf.constant(x)), ~x)
    long, steps = x.astype("int64") << 31, np.arange(10_000) % 64
    np.testing.assert_array_equal(bits.shifted_right(tf.constant(long), tf.constant(steps)), long >> steps)
    np.testing.assert_array_equal(bits.halves_in_both(tf.constant(long), tf.constant(steps)), long & steps)


def test_bits_of_floats_are_those_of_numpy():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 10_000, "int64").astype("int32")
    x = np.concatenate([x, np.array([0, -0.0, np.inf, -np.inf, 1, 3.4e38], "float32").view("int32")])
    is_usual = np.isfinite(x.view("float32")) & (np.abs(x.view("float32")) > 1.2e-38) | (x & 0x7FFFFFFF == 0)
    x = x[is_usual]  # TensorFlow takes smaller numbers for 0 on a CPU.
    np.testing.assert_array_equal(bits.bits_of_float(tf.constant(x.view("float32"))), x)
    np.testing.assert_array_equal(bits.float_of_bits(tf.constant(x)).numpy().view("int32"), x)


def test_quotients_of_large_integers_are_exact():
    random = np.random.default_rng(0)
    x = random.integers(-(2**63), 2**63 - 1, 10_000, "int64")
    y = x[::-1] >> random.integers(0, 62, 10_000)
    y[y == 0] = 3
    np.testing.assert_array_equal(arithmetic.floor_division_of_int64(tf.constant(x), tf.constant(y)), x // y)
    truncated = arithmetic.truncated_division_of_int64(tf.constant(x), tf.constant(y))
    np.testing.assert_array_equal(truncated, tf.truncatediv(x, y))


def test_the_next_float_is_that_of_numpy():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 10_000, "int64").astype("int32").view("float32")
    x = x[np.abs(x) > 1e-37]
    y = x[::-1].copy()
    np.testing.assert_array_equal(arithmetic.next_after(tf.constant(x), tf.constant(y)), np.nextafter(x, y))
    ends = np.array([np.inf, -np.inf, 3.4028235e38, 1], "float32")
    toward = np.array([0, 0, np.inf, 1], "float32")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(arithmetic.next_after(ends, toward), np.nextafter(ends, toward))


def test_a_graph_without_such_operations_is_not_copied():
    graph = traced(lambda x: tf.nn.relu(x) + 1.0, [np.ones((2, 3), "float32")])
    assert lowered(graph, "tflite", lambda op, node: node) is graph


def test_softplus_of_other_types_is_left_to_the_converter():
    x = np.ones(3, "float64")
    assert "Softplus" in {node.op for node in lowered_graph(tf.nn.softplus, "tflite", x).graph_def.node}


def test_an_erfc_that_a_gradient_reads_too_is_that_of_a_gelu():
    x = np.concatenate([np.linspace(-4, 4, 801), [0.0]]).astype("float32")

    def function(x):
        erfc = tf.math.erfc(x * 1.0)
        return erfc * 1.0, erfc * 3.0

    graph = lowered_graph(function, "tflite", x)
    found, triple = ran(graph, [x])
    expected = scipy.special.erfc(x.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-7)
    np.testing.assert_allclose(triple, 3 * expected, rtol=0, atol=1.2e-6)
    assert [node.op for node in graph.graph_def.node].count("Erfc") == 1  # That of the GELU.


def test_an_erfc_of_a_gelu_is_left_to_the_converter():
    graph = lowered_graph(lambda x: keras.activations.gelu(x, approximate=False), "tflite", np.ones(3, "float32"))
    assert [node.op for node in graph.graph_def.node].count("Erfc") == 1
    alone = lowered_graph(lambda x: 2.0 - tf.math.erfc(x), "tflite", np.ones(3, "float32"))
    assert "Erfc" not in {node.op for node in alone.graph_def.node}


SLICES = {
    "column": lambda x: x[:, 0],
    "parts of all axes": lambda x: x[1:, :-1, 2:4],
    "from the end": lambda x: x[-2],
    "range and index": lambda x: x[:, 1:3, -1],
    "ellipsis": lambda x: x[..., 2:],
    "ellipsis between": lambda x: x[1, ..., :3],
    "new axes": lambda x: x[:, None, 1:, ..., None, 4],
}


@pytest.mark.parametrize("part", SLICES.values(), ids=list(SLICES))
def test_gradients_of_slices_are_zeros_around(part):
    x = np.arange(3 * 4 * 5, dtype="float32").reshape(3, 4, 5)

    def function(x):
        x = tf.ensure_shape(x, (3, 4, 5))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.square(part(x)))
        return tape.gradient(y, x)

    graph = lowered_graph(function, "tflite", x)
    (found,) = ran(graph, [x])

    expected = np.zeros_like(x)
    index = np.asarray(part(np.arange(x.size).reshape(x.shape)))
    expected.reshape(-1)[index.reshape(-1)] = 2 * x.reshape(-1)[index.reshape(-1)]
    assert "StridedSliceGrad" not in {node.op for node in graph.graph_def.node}
    np.testing.assert_array_equal(found, expected)


def test_new_axes_are_counted_from_the_side_without_an_ellipsis():
    assert slices.new_axes(["range", "new", "range"]) == [1]
    assert slices.new_axes(["new", "new", "range"]) == [0, 1]
    assert slices.new_axes(["range", "shrink", "new", "ellipsis", "new"]) == [1, -1]
    assert slices.new_axes(["ellipsis", "new", "shrink", "range", "new"]) == [-1, -3]


def test_operations_in_loops_and_branches_are_replaced():
    x = np.array([[0.5, -1.5, 2.0]], "float32")

    def function(x):
        _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.roll(tf.sinh(y) / 3.0, 1, 1)), (0, x))
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.math.log1p(tf.abs(y)), lambda: y)

    graph = lowered_graph(function, "tflite", x)
    assert not {"Sinh", "Roll", "Log1p", "Expm1"} & {node.op for node in nodes_of(graph.graph_def)}
    expected = x
    for _ in range(3):
        expected = np.roll(np.sinh(expected.astype("float64")) / 3, 1, 1)
    np.testing.assert_allclose(ran(graph, [x])[0], np.log1p(np.abs(expected)), rtol=2e-6)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_of_several_branches_is_nested_choices(count):
    branches = [lambda x: x + 1, lambda x: 2 * x, tf.sin, tf.abs, lambda x: x * x][:count]

    def function(x, i):
        return tf.switch_case(i, [lambda branch=branch: branch(x) for branch in branches])

    x = np.array([0.5, -1.5], "float32")
    for index in range(-1, count + 1):
        i = np.array(index, "int32")
        graph = lowered_graph(function, "onnx", x, i)
        assert not {"Case", "StatelessCase"} & {node.op for node in nodes_of(graph.graph_def)}
        np.testing.assert_array_equal(ran(graph, [x, i])[0], function(tf.constant(x), tf.constant(i)))


def test_a_case_in_a_branch_of_a_case_in_a_loop_is_replaced():
    def inner(x, i):
        return tf.switch_case(i, [lambda: x * 2, lambda: x * 3, lambda: x * 5])

    def step(number, x, i):
        return number + 1, tf.switch_case(number, [lambda: x + 1, lambda: inner(x, i), lambda: x - 7])

    def function(x, i):
        return tf.while_loop(lambda number, y: number < 3, lambda number, y: step(number, y, i), (tf.constant(0), x))[1]

    x = np.array([0.5, -1.5], "float32")
    for index, factor in enumerate((2, 3, 5)):
        i = np.array(index, "int32")
        graph = lowered_graph(function, "tflite", x, i)
        assert not {"Case", "StatelessCase"} & {node.op for node in nodes_of(graph.graph_def)}
        np.testing.assert_array_equal(ran(graph, [x, i])[0], (x + 1) * factor - 7)


def test_a_loop_carries_the_element_of_a_list_of_one():
    def step(carry, x):
        return carry / 2 + x, carry * 3

    state, x = np.array([4.0, 8], "float32"), np.array([[1.0, 2], [3, 4]], "float32")
    graph = lowered_graph(lambda s, x: list(keras.ops.scan(step, s, x)), "onnx", state, x)

    (loop,) = (node for node in graph.graph_def.node if node.op.endswith("While"))
    assert list(loop.attr["T"].list.type).count(tf.variant.as_datatype_enum) == 2  # What it reads, and what it writes.
    last, all_of_them = ran(graph, [state, x])
    np.testing.assert_array_equal(last, [4.5, 7])
    np.testing.assert_array_equal(all_of_them, [[12, 24], [9, 18]])


def test_calls_of_functions_are_in_the_graph_itself():
    @tf.function(autograph=False)
    def inner(x):
        return tf.roll(x, 1, 1) * 2.0

    @tf.function(autograph=False, jit_compile=True)
    def outer(x):
        return inner(x) + inner(inner(x) + 1.0), x

    x = np.array([[1.0, 2.0, 4.0]], "float32")
    graph = traced(lambda x: tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, outer(y)[0]), (0, x))[1], [x])

    assert not [node.op for node in nodes_of(graph.graph_def) if "Call" in node.op]
    expected = x
    for _ in range(2):
        once = 2 * np.roll(expected, 1, 1)
        expected = once + 2 * np.roll(once + 1, 1, 1)
    np.testing.assert_array_equal(ran(graph, [x])[0], expected)


def test_an_integer_below_zero_is_divided_downward_in_onnx():
    x = np.array([-7, -6, -1, 0, 5], "int32")
    graph = lowered_graph(lambda x: x // 3, "onnx", x)
    assert "FloorDiv" not in {node.op for node in graph.graph_def.node}
    np.testing.assert_array_equal(ran(graph, [x])[0], [-3, -2, -1, 0, 1])


@pytest.fixture
def registered():
    """Forgets afterwards what is registered."""
    before = {format: dict(each) for format, each in table._REGISTERED.items()}
    yield
    for format, each in before.items():
        table._REGISTERED[format] = each


def test_a_user_registers_a_function_of_several_results(registered):
    x = np.array([[3.0, 1.0, 2.0]], "float32")
    register_lowering(
        "TopKV2", "onnx", lambda x, k, sorted: (x[:, :2] * 10.0, tf.cast(k, tf.int32) + [[5, 7]]), ["sorted"]
    )

    values, indices = ran(lowered_graph(lambda x: tuple(tf.math.top_k(x, 2)), "onnx", x), [x])

    np.testing.assert_array_equal(values, [[30, 10]])
    np.testing.assert_array_equal(indices, [[7, 9]])
    assert lowered_graph(
        lambda x: tuple(tf.math.top_k(x, 2)), "tflite", x
    ).graph_def.node  # The other format has its own.


def test_a_function_may_use_what_the_table_replaces_but_not_itself(registered):
    x = np.array([0.25, 0.5], "float32")
    register_lowering("Lgamma", "tflite", lambda x: tf.sinh(tf.cosh(x)))
    graph = lowered_graph(tf.math.lgamma, "tflite", x)
    np.testing.assert_allclose(ran(graph, [x])[0], np.sinh(np.cosh(x)), rtol=1e-6)
    assert not {"Sinh", "Cosh", "Expm1"} & {node.op for node in graph.graph_def.node}

    register_lowering("Lgamma", "tflite", lambda x: tf.math.lgamma(x) + 1.0)
    with pytest.raises(ExportError, match="Lgamma.*contains the operation itself"):
        lowered_graph(tf.math.lgamma, "tflite", x)


def test_complex_outputs_are_refused_with_a_remedy(tmp_path):
    real, imaginary = keras.Input((4,), name="real"), keras.Input((4,), name="imaginary")

    class Complex(keras.layers.Layer):
        def call(self, real, imaginary):
            return keras.ops.view_as_complex(keras.ops.stack([real, imaginary], -1))

    z = Complex(name="z")(real, imaginary)
    with pytest.raises(InvalidModelError, match="output 'z' is complex.*view_as_real"):
        export(keras.Model([real, imaginary], z), tmp_path / "refused", ["onnx"], progress=False)

    remedied = keras.Model([real, imaginary], keras.ops.view_as_real(z))
    export(remedied, tmp_path / "remedied", ["onnx"], progress=False)
    x, y = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    (found,) = load(tmp_path / "remedied", "onnx")({"real": x, "imaginary": y}).values()
    np.testing.assert_array_equal(found, np.stack([x, y], -1))


def test_an_operation_of_a_function_has_a_name_that_no_other_has():
    x = np.random.default_rng(0).normal(size=(2, 9)).astype("float32")

    def function(x):
        y = tf.math.sinh(x, name="y")
        with tf.name_scope("y/"):
            return y + tf.constant([6.0], name="mul/x")

    graph = lowered_graph(function, "tflite", x)
    names = [node.name for node in graph.graph_def.node]
    assert {"y", "y/mul/x", "y/mul/x_"} <= set(names)
    assert len(names) == len(set(names))
    np.testing.assert_allclose(ran(graph, [x])[0], np.sinh(x) + 6.0, rtol=1e-6)


def test_what_cannot_be_registered():
    with pytest.raises(UnknownFormatError, match="coreml"):
        register_lowering("Lgamma", "coreml", tf.identity)
    with pytest.raises(ExportError, match="no operation 'Lgama'"):
        register_lowering("Lgama", "onnx", tf.identity)


def test_a_refused_operation_is_named_with_reason_and_remedy():
    x = np.array([5.0, 6.0])
    graph = traced(lambda x: tf.bitcast(tf.bitcast(x, tf.int64, "there") + 1, tf.float64, "back"), [x])
    with pytest.raises(UnsupportedOpError, match="bits of a number; leave this format out") as caught:
        lowered(graph, "onnx", lambda op, node: f"layer of {node}")
    named = {(caught.value.op, caught.value.layer), *caught.value.others}
    assert named == {("Bitcast", "layer of there"), ("Bitcast", "layer of back")}


def test_the_page_of_the_documentation_is_that_of_the_table(monkeypatch):
    root = pathlib.Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "benchmarks")
    assert (root / "docs" / "operations.md").read_text() == importlib.import_module("operations_table").page()
