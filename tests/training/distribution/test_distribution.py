"""Many devices, and many workers, train as one does with the whole batch; one that is killed goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_transformer import models, training
from keras_transformer.training.distribution.replicas import cluster_size

pytestmark = pytest.mark.exhaustive

HERE = Path(__file__).parent
ONE_DEVICE = 1e-5  # How far the losses of a step may be from those of one device.


def run(script, *words):
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    environment.pop("TF_CONFIG", None)
    command = [sys.executable, str(HERE / script), *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, (result.stdout + result.stderr)[-2000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory):
    return run("distributed_worker.py", tmp_path_factory.mktemp("workers"))[-1]


@pytest.fixture(scope="module")
def on_jax():
    pytest.importorskip("jax")
    return {found["name"]: found for found in run("sharded_worker.py", "mixtral", "vit")}


def far(found, expected):
    """How far all losses found for the steps are from those expected."""
    return max(abs(loss - expected[step][0]) for step, losses in found.items() for loss in losses)


def test_two_devices_train_as_one(on_tensorflow):
    assert len(on_tensorflow["mirrored"]) == len(on_tensorflow["alone"]) == 8
    assert far(on_tensorflow["mirrored"], on_tensorflow["alone"]) <= ONE_DEVICE


@pytest.mark.parametrize("index", [0, 1])
def test_two_workers_train_as_one_though_one_is_killed(on_tensorflow, index):
    found = on_tensorflow[f"worker_{index}"]
    assert sorted(map(int, found)) == list(range(8))
    assert far(found, on_tensorflow["alone"]) <= ONE_DEVICE


def test_one_goes_on_where_two_were_ended(on_tensorflow):
    found = on_tensorflow["one of two"]
    assert sorted(map(int, found)) == [4, 5, 6, 7]
    assert far(found, on_tensorflow["alone"]) <= ONE_DEVICE


def test_workers_go_on_from_the_checkpoint(on_tensorflow):
    done = sorted(map(int, on_tensorflow["before the kill"]))
    assert done == list(range(5))  # The sixth step was never made, the fifth was not saved: it is made twice.
    times = {int(step): len(losses) for step, losses in on_tensorflow["worker_0"].items()}
    assert times == {0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 1, 7: 1}


# Norms, and what few key/value heads leave whole, lie on each device. `sharded_worker.py` alone tries more models.
@pytest.mark.parametrize("name, most", [("mixtral", 0.6), ("vit", 0.5)])
def test_eight_devices_train_as_one(on_jax, name, most):
    found = on_jax[name]
    assert max(abs(a - b) for a, b in zip(found["alone"], found["many"], strict=True)) <= ONE_DEVICE
    assert found["alone"][0] != found["alone"][-1]
    assert found["share"] <= most


@pytest.mark.parametrize("name", ["mixtral", "vit"])
def test_checkpoints_of_split_weights_go_on_on_fewer_devices(on_jax, name):
    found = on_jax[name]
    assert max(abs(a - b) for a, b in zip(found["alone"], found["fewer"], strict=True)) <= ONE_DEVICE


def test_the_number_of_workers_is_read(monkeypatch):
    assert cluster_size() == 1
    config = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert cluster_size() == 3


def test_refuses_what_it_cannot_divide():
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(training.DistributionError, match="JAX"):
            training.distributed(lambda: None, model_parallel=2)
    if keras.backend.backend() == "jax":
        with pytest.raises(training.DistributionError, match="groups of 3"):
            training.distributed(lambda: None, model_parallel=3, devices=["cpu:0", "cpu:0"])


def mesh(size):
    return keras.distribution.DeviceMesh((1, size), ("batch", "model"), [f"cpu:{index}" for index in range(size)])


def test_layouts_split_what_belongs_together():
    model = models.Decoder(models.Size(1, 16, 4, 24), 10, feedforward="gated")
    layouts = models.layout_map(model, mesh(4))
    block = "decoder_block_0"
    expected = {
        "token_embedding/embeddings": (None, "model"),  # 10 tokens do not divide by 4.
        f"{block}/self_attention/query/kernel": (None, "model", None),
        f"{block}/self_attention/query/bias": ("model", None),
        f"{block}/self_attention/attention_output/kernel": ("model", None, None),
        f"{block}/feedforward/gate/kernel": (None, "model"),
        f"{block}/feedforward/hidden/kernel": (None, "model"),
        f"{block}/feedforward/output/kernel": ("model", None),
        f"{block}/self_attention/attention_output/bias": None,
        "final_norm/gamma": None,
    }
    paths = {variable.path for variable in model.variables}
    assert set(expected) <= paths
    found = {path: layouts[path] and tuple(layouts[path].axes) for path in expected}
    assert found == expected


def test_few_key_value_heads_stay_whole():
    model = models.Llama(models.Size(1, 16, 4, 24), 12, num_key_value_heads=2)
    layouts = models.layout_map(model, mesh(4))
    assert layouts["decoder_block_0/self_attention/key/kernel"] is None
    assert layouts["decoder_block_0/self_attention/query/kernel"] is not None


def test_the_axis_must_be_one_of_the_mesh():
    with pytest.raises(ValueError, match="no axis 'tensor'"):
        models.layout_map(models.Encoder(models.Size(1, 8, 2, 16), 10), mesh(2), axis="tensor")
