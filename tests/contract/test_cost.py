"""Growth of the cost of every mechanism with the length, counted in graphs and exported files, not timed."""

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import cases

WORKER = Path(__file__).with_name("cost_worker.py")
LENGTHS = (2048, 4096, 8192)
# Constant costs and costs per block raise the measured exponent slightly.
MARGIN = 0.1
ATTENDING = {
    name: case for name, case in cases.MIXERS.items() if name.startswith(("mechanism-", "mixer-", "recurrence-"))
}
SUBQUADRATIC = sorted(name for name, case in ATTENDING.items() if case.growth.memory < 2)


def exponent(values):
    """Returns the largest growth between consecutive lengths: cost ~ length ** exponent."""
    pairs = zip(itertools.pairwise(values), itertools.pairwise(LENGTHS), strict=True)
    return max(math.log(after / before) / math.log(long / short) for (before, after), (short, long) in pairs)


def check(costs, growth):
    """Compares costs by length, dicts or `Cost`, with the documented growth."""
    costs = [cost if isinstance(cost, dict) else vars(cost) for cost in costs]
    where = f"the largest tensors: {[(cost['largest'], cost['where']) for cost in costs]}"
    assert exponent([cost["largest"] for cost in costs]) <= growth.memory + MARGIN, where
    flops = [cost["flops"] for cost in costs]
    if None not in flops:  # TFLite files contain no trip counts of loops.
        assert exponent(flops) <= growth.flops + MARGIN, flops
    first, middle, last = nodes = [cost["nodes"] for cost in costs]
    # Each doubling adds one level to a scan, and twice as many nodes as the previous one to a Python loop over blocks.
    # Lengths that are multiples of the block size need no padding nodes.
    assert last - middle <= max(1.5 * (middle - first), 0.1 * first), f"the graph itself grows: {nodes} nodes"


def traced(case, **options):
    """Returns a dict of "forward" and "gradient" to the costs by length."""
    from graph_cost import layer_costs

    by_length = [
        layer_costs(case.make(**case.growth.arguments(length)), (1, length, cases.WIDTH), **options)
        for length in LENGTHS
    ]
    return {name: [costs[name] for costs in by_length] for name in by_length[0]}


on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")


@pytest.mark.exhaustive
@on_tensorflow
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", sorted(ATTENDING))
def test_forward_and_gradient_grow_as_documented(name, direction):
    case = ATTENDING[name]
    if direction not in case.make(**case.growth.arguments(LENGTHS[0])).supports:
        pytest.skip(f"{direction} attention is not supported")
    for costs in traced(case, use_causal_mask=direction == "causal").values():
        check(costs, case.growth)


@pytest.mark.exhaustive
@on_tensorflow
@pytest.mark.parametrize("position", sorted(cases.ATTENTION_POSITIONS))
def test_blockwise_grows_as_documented_with_every_position(position):
    """Position biases and their gradients are computed tile by tile too."""
    case = cases.MECHANISMS["blockwise"]
    case = dataclasses.replace(case, wrap=lambda mechanism: cases.attend(mechanism=mechanism, position=position))
    for costs in traced(case, use_causal_mask=True).values():
        check(costs, case.growth)


@on_tensorflow
@pytest.mark.parametrize("claim", [cases.LINEAR, cases.Growth(memory=2), cases.Growth(flops=2)])
def test_softmax_fails_with_a_lower_growth(claim):
    costs = traced(cases.MECHANISMS["softmax"], use_causal_mask=True)
    for each in costs.values():
        with pytest.raises(AssertionError):
            check(each, claim)


@on_tensorflow
def test_masked_window_fails_as_linear():
    masked = cases.Case(cases.MultiHeadAttention, lambda: {"num_heads": 4, "key_dim": 6, "sliding_window": 3})
    with pytest.raises(AssertionError, match="the largest tensors"):
        check(traced(masked)["forward"], cases.LINEAR)


@pytest.fixture(scope="module")
def files(tmp_path_factory, selected):
    directory = tmp_path_factory.mktemp("cost") / "files"
    directory.mkdir()
    command = [sys.executable, WORKER, directory, ",".join(map(str, LENGTHS)), *sorted(selected("files", "name"))]
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    with open(directory / "log", "w") as log:
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
    if not (directory / "results.json").exists():
        pytest.fail((directory / "log").read_text()[-3000:], pytrace=False)
    return json.loads((directory / "results.json").read_text())


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize("name", SUBQUADRATIC)
def test_exported_files_grow_as_documented(files, name, form):
    assert "error" not in files[name], files[name]["error"]
    check(files[name][form], ATTENDING[name].growth)
