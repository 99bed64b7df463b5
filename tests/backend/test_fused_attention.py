"""Fused attention: the kernel is part of the training step that JAX compiles for CUDA, which needs no GPU to be lowered."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from variants import exhaustive_but

pytestmark = pytest.mark.slow
SCRIPT = pathlib.Path(__file__).with_name("cuda_programs.py")
BLOCKS = 2
OFTEN = ("causal", "alibi")


@pytest.fixture(scope="module")
def found(request):
    waiting = [item for item in request.session.items if item.path == request.path]
    every = any(item.get_closest_marker("exhaustive") for item in waiting)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, SCRIPT, *([] if every else OFTEN)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def step(found, name):
    return found["programs"][name]


@pytest.mark.parametrize("name", exhaustive_but(["causal", "grouped", "window", "local", "images"], "causal"))
def test_every_block_is_a_kernel_without_mask_and_scores(found, name):
    assert step(found, name)["forward"] == ["Softmax"] * BLOCKS
    assert step(found, name)["backward"] == ["SoftmaxBackward"] * BLOCKS
    assert not step(found, name)["has_scores"]


@pytest.mark.exhaustive
def test_flags_of_the_kernel(found):
    assert step(found, "causal")["masks"] == step(found, "window")["masks"] == ["CAUSAL"]
    assert step(found, "images")["masks"] == ["PADDING"]  # 17 tokens are padded to 18.
    assert step(found, "causal")["windows"] == ["0"]
    assert step(found, "window")["windows"] == step(found, "local")["windows"] == ["20"]


@pytest.mark.exhaustive
def test_heads_of_keys_are_not_repeated(found):
    assert step(found, "causal")["heads"] == ["4"]
    assert step(found, "grouped")["heads"] == ["2", "4"]


@pytest.mark.parametrize("name", exhaustive_but(["alibi", "padding", "segments"], "alibi"))
def test_a_mask_is_a_bias_of_a_causal_kernel(found, name):
    assert step(found, name)["forward"] == ["ScaleBiasSoftmax"] * BLOCKS
    assert step(found, name)["backward"] == ["ScaleBiasSoftmaxBackward"] * BLOCKS
    assert step(found, name)["masks"] == ["CAUSAL"]


@pytest.mark.exhaustive
def test_long_packed_rows_are_a_kernel_that_compares_segments(found):
    kernels = step(found, "long segments")["segmented"]
    # The forward kernel is in a function, which each block calls.
    assert set(kernels) == {"mha_forward", "mha_preprocess_backward", "mha_backward"}
    assert kernels.count("mha_backward") == BLOCKS
    assert step(found, "long segments")["forward"] == []  # None of cuDNN.
    assert not step(found, "long segments")["has_scores"]
    assert step(found, "segments")["segmented"] == []  # Short ones.


@pytest.mark.parametrize("name", exhaustive_but(["float32", "dropout"], "float32"))
def test_what_the_kernel_does_not_support(found, name):
    assert step(found, name)["forward"] == []
    assert step(found, name)["has_scores"]  # So that its absence above says something.


KINDS = [("xla", 7, 5e-6), ("padded", 7, 5e-6), ("segments", 2, 1e-5)]


@pytest.mark.parametrize("kind, count, most", exhaustive_but(KINDS, KINDS[0]))
def test_values_and_gradients_are_those_of_softmax(found, kind, count, most):
    assert len(found["differences"][kind]) == count
    assert max(found["differences"][kind].values()) < most, found["differences"][kind]


def test_a_step_transfers_nothing(found):
    for name, program in found["programs"].items():
        assert program["callbacks"] == [], name
        assert program["donated"] == program["variables"] > 50, name
    loss, is_refused = found["guarded"]
    assert 3 < loss < 6
    assert is_refused  # The guard sees a batch that is not on the device.
