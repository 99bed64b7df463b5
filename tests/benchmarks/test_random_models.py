"""The fuzzer of models: a seed makes one graph, its inputs reach all regions, and a fault is found and made small."""

import pathlib
import sys

import numpy as np
import pytest

from benchmark_reports import ROOT

# The drawn graphs call layers of Keras by the cases that lie beside the fuzzer.
sys.path.append(str(pathlib.Path(ROOT, "benchmarks")))
draw = pytest.importorskip("random_graphs.draw")
graph, reduce, reference, regions = (
    __import__(f"random_graphs.{name}", fromlist=["*"]) for name in ("graph", "reduce", "reference", "regions")
)

X = graph.Input("x", (None, 4), "float32")
Y = graph.Input("y", (None, 4), "float32")
# The floor of a sum, amid what has nothing to do with it.
NODES = (
    graph.Node("a", "layers.Dense(4)({0})", ("y",)),
    graph.Node("b", "ops.tanh({0})", ("a",)),
    graph.Node("c", "ops.add({0}, {1})", ("x", "b")),
    graph.Node("d", "ops.floor({0})", ("c",)),
    graph.Node("e", "ops.maximum({0}, {1})", ("d", "x")),
    graph.Node("f", "ops.sum({0}, axis=-1)", ("b",)),
)
GRAPH = graph.Graph((X, Y), NODES, ("e", "f"))


def _faulty(node, tensor):
    """Rounds to zero in place of down."""
    import tensorflow as tf

    return tf.where(tensor < 0, tensor + 1, tensor) if getattr(node, "text", "").startswith("ops.floor") else tensor


def _judged(program, arrays):
    """The outcome of a file in which a floor rounds to zero."""
    given = [("normal", arrays)]

    def file(inputs):
        return {name: program.tensors(inputs, _faulty)[name].numpy() for name in program.graph.outputs}

    return reference.Reference(program, given).difference(file) or reference.Outcome(reference.EQUAL)


def _normal(*names):
    random = np.random.default_rng(3)
    return {name: random.normal(size=(5, 4)).astype("float32") for name in names}


def test_a_seed_makes_one_graph():
    found = {seed: draw.drawn(seed) for seed in (4, 5)}
    assert {seed: draw.drawn(seed) for seed in found} == found
    assert found[4] != found[5]
    for each in found.values():
        names = {one.name for one in each.inputs}
        for node in each.nodes:
            assert set(node.sources) <= names
            names.add(node.name)
        assert set(each.outputs) <= names


def test_each_line_of_the_table_has_a_graph():
    """A line with a mistake would never become a node, and nothing would say so."""
    import re

    from random_graphs import templates

    holes = {hole for lines in templates.LINES.values() for hole in re.findall(r"<(\w+)>", lines)}
    assert holes <= set(templates.CHOICES)
    made = templates.templates()
    assert set(made) == set(templates.WEIGHTS)
    texts = " ".join(each.text for each in made["functions"])
    assert "image.hsv_to_rgb" in texts
    for each in (one for group in made.values() for one in group):
        assert {f"{{{number}}}" for number in range(len(each.takes))} == set(re.findall(r"\{\d\}", each.text))


def test_inputs_reach_the_ends_of_types():
    inputs = (graph.Input("x", (None, 50), "float32"), graph.Input("i", (None, 50), "int32"))
    found = dict(regions.trials(graph.Graph(inputs, (), ()), 0))
    assert set(found) == set(regions.FLOATS)
    assert {-(2**31), 2**31 - 1} <= set(found["most"]["i"].ravel().tolist())
    assert np.signbit(found["signed zero"]["x"][found["signed zero"]["x"] == 0]).any()
    assert not np.signbit(found["signed zero"]["x"]).all()
    assert np.isnan(found["nan"]["x"]).any()
    assert not np.isnan(found["nan"]["x"]).all()
    assert {-np.inf, np.inf} <= set(found["infinite"]["x"].ravel().tolist())
    assert found["pixels"]["x"].min() >= 0
    assert found["pixels"]["x"].max() > 200


def test_rounding_is_no_fault_and_a_small_fault_is_one():
    program, arrays = graph.Program(GRAPH, 0), _normal("x", "y")
    compared = reference.Reference(program, [("normal", arrays)])
    exact = program.outputs(arrays)
    assert compared.difference(lambda _: exact) is None
    rounded = {**exact, "f": exact["f"] * np.float32(1 + 3e-7)}
    assert compared.difference(lambda _: rounded) is None
    faulty = {**exact, "f": exact["f"] * np.float32(1 + 3e-4)}
    found = compared.difference(lambda _: faulty)
    assert (found.kind, found.output, found.region) == (reference.WRONG, "f", "normal")


def test_a_jump_is_no_fault_where_noise_crosses_it():
    floor = graph.Graph((X,), (graph.Node("d", "ops.floor({0} * 3.0)", ("x",)),), ("d",))
    program = graph.Program(floor, 0)
    near, far = np.full((1, 4), 1 / 3, "float32"), np.full((1, 4), 0.4, "float32")
    for arrays, is_fault in ((near, False), (far, True)):
        compared = reference.Reference(program, [("normal", {"x": arrays})])
        found = compared.difference(lambda given: {"d": program.outputs(given)["d"] - 1})
        assert (found is not None) is is_fault


def test_what_may_be_zero_may_divide():
    """Runtimes return 0 for what underflows, and for what is smaller than a bounded function is exact to."""
    x = np.array([[-90.0, 0, 0, 0]], "float32")
    for text, value in (
        ("ops.softmax({0})", x),
        ("ops.sigmoid({0})", x / 3),
        ("ops.sqrt(ops.abs({0}))", x * 0 + 1e-20),
    ):
        nodes = (graph.Node("c", text, ("x",)), graph.Node("d", "1.0 / {0}", ("c",)))
        program = graph.Program(graph.Graph((X,), nodes, ("d",)), 0)
        compared = reference.Reference(program, [("normal", {"x": value})])
        exact = program.outputs({"x": value})["d"]
        wrong = exact.copy()
        wrong[0, 0] = np.inf
        is_fault = compared.difference(lambda _, found=wrong: {"d": found}) is not None
        assert is_fault is text.startswith("ops.sqrt")


def test_what_a_report_says_is_told_apart():
    node = graph.Node("d", "ops.where(ops.isnan({0}), 1.0, {0})", ("x",))
    program = graph.Program(graph.Graph((X,), (node,), ("d",)), 0)
    wrong = {"d": np.array([[1, 7, 7, 7]], "float32")}
    ranges = {"x": (-5.0, 5.0)}
    for region, value, names_nan, kind in (
        ("normal", 2.5, True, reference.WRONG),
        ("thirty", 60.5, False, reference.WRONG),  # Data of users have such numbers.
        ("large", 60.5, False, reference.OUTSIDE),
        ("infinite", np.inf, False, reference.OUTSIDE),
        ("nan", np.nan, True, reference.SAID),
        ("nan", np.nan, False, reference.WRONG),
    ):
        arrays = {"x": np.array([[value, 0, 0, 0]], "float32")}
        compared = reference.Reference(program, [(region, arrays)])
        assert compared.difference(lambda _: wrong, reference.Said(ranges, names_nan)).kind == kind
        assert compared.difference(lambda _: wrong).kind == reference.WRONG


def test_nothing_is_compared_where_keras_computes_two_results(monkeypatch):
    softmax = graph.Graph((X,), (graph.Node("d", "ops.softmax({0})", ("x",)),), ("d",))
    program = graph.Program(softmax, 0)
    compared = reference.Reference(program, [("infinite", {"x": np.array([[5, 0, 1, 2]], "float32")})])
    exact = program.outputs(compared.trials[0][1])
    monkeypatch.setattr(program, "compiled", lambda *_: np.full((1, 4), np.nan, "float32"))
    wrong = {"d": exact["d"] + 1}
    assert compared.difference(lambda _: wrong).kind == reference.WRONG
    assert compared.difference(lambda _: wrong, reference.Said({}, False)) is None


def test_a_planted_fault_is_reduced_to_its_node():
    outcome = _judged(graph.Program(GRAPH, 0), _normal("x", "y"))
    assert (outcome.kind, outcome.output) == (reference.WRONG, "e")
    small, found = reduce.reduced(
        GRAPH, 0, "onnx", outcome, lambda each, arrays: _judged(graph.Program(each, 0), arrays)
    )
    assert [node.text for node in small.nodes] == ["ops.floor({0})"]
    (array,) = found.arrays.values()
    assert array.shape == (1, 4)
    assert np.count_nonzero(array) == 1
    assert array.min() < 0
    script = small.code(0, "onnx", found.arrays)
    assert "ops.floor(" in script
    compile(script, "script", "exec")


def test_a_script_exports_and_compares(tmp_path, capsys):
    """The script of a finding runs as it is printed, and shows both results."""
    small = graph.Graph((X,), (graph.Node("d", "ops.floor({0})", ("x",)),), ("d",))
    script = small.code(0, "onnx", {"x": np.array([[-1.5, 2.5, np.inf, 0]], "float32")})
    exec(compile(script.replace("/tmp/random_model", str(tmp_path / "model")), "script", "exec"), {})
    assert capsys.readouterr().out.count("-2.") == 2
