"""How the cost of every mechanism grows with the length: counted in graphs and in exported files, never timed."""

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
# What does not grow, and what is paid once for each block, may add a little to a claim.
MARGIN = 0.1
ATTENDING = {
    name: case for name, case in cases.MIXERS.items() if name.startswith(("mechanism-", "mixer-", "recurrence-"))
}
SUBQUADRATIC = sorted(name for name, case in ATTENDING.items() if case.growth.memory < 2)


def exponent(values):
    """The steepest growth between neighboring lengths: cost ~ length ** exponent."""
    pairs = zip(itertools.pairwise(values), itertools.pairwise(LENGTHS), strict=True)
    return max(math.log(after / before) / math.log(long / short) for (before, after), (short, long) in pairs)


def check(costs, growth):
    """Costs by length, as dicts or `Cost`, against what is claimed."""
    costs = [cost if isinstance(cost, dict) else vars(cost) for cost in costs]
    where = f"the largest tensors: {[(cost['largest'], cost['where']) for cost in costs]}"
    assert exponent([cost["largest"] for cost in costs]) <= growth.memory + MARGIN, where
    flops = [cost["flops"] for cost in costs]
    if None not in flops:  # A TFLite file does not tell how often a loop went round.
        assert exponent(flops) <= growth.flops + MARGIN, flops
    first, middle, last = nodes = [cost["nodes"] for cost in costs]
    # Each doubling adds a level to a scan, and twice as much as the one before to a loop over blocks in Python. A length
    # that fits its blocks needs no padding: a little may come and go.
    assert last - middle <= max(1.5 * (middle - first), 0.1 * first), f"the graph itself grows: {nodes} nodes"


def traced(case, **options):
    """Dict of "forward" and "gradient" to the costs by length."""
    from graph_cost import layer_costs

    by_length = [
        layer_costs(case.make(**case.growth.arguments(length)), (1, length, cases.WIDTH), **options)
        for length in LENGTHS
    ]
    return {name: [costs[name] for costs in by_length] for name in by_length[0]}


on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")


@on_tensorflow
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", sorted(ATTENDING))
def test_forward_and_gradient_grow_as_claimed(name, direction):
    case = ATTENDING[name]
    if direction not in case.make(**case.growth.arguments(LENGTHS[0])).supports:
        pytest.skip(f"it has no {direction} form")
    for costs in traced(case, use_causal_mask=direction == "causal").values():
        check(costs, case.growth)


@on_tensorflow
@pytest.mark.parametrize("position", sorted(cases.ATTENTION_POSITIONS))
def test_blockwise_grows_as_claimed_with_every_position(position):
    """What a position adds and learns is made tile by tile too."""
    case = cases.MECHANISMS["blockwise"]
    case = dataclasses.replace(case, wrap=lambda mechanism: cases.attend(mechanism=mechanism, position=position))
    for costs in traced(case, use_causal_mask=True).values():
        check(costs, case.growth)


@on_tensorflow
@pytest.mark.parametrize("claim", [cases.LINEAR, cases.Growth(memory=2), cases.Growth(flops=2)])
def test_softmax_does_not_pass_for_less(claim):
    costs = traced(cases.MECHANISMS["softmax"], use_causal_mask=True)
    for each in costs.values():
        with pytest.raises(AssertionError):
            check(each, claim)


@on_tensorflow
def test_a_window_that_is_only_masked_does_not_pass():
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


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize("name", SUBQUADRATIC)
def test_exported_files_grow_as_claimed(files, name, form):
    assert "error" not in files[name], files[name]["error"]
    check(files[name][form], ATTENDING[name].growth)
