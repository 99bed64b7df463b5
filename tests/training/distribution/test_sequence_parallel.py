"""Rows that devices share train as on one device, and only keys, values and gradients are exchanged."""

from pathlib import Path

import keras
import pytest

from keras_transformer import training

WORKER = Path(__file__).with_name("sequence_worker.py")
# Rows, their length, and the width of a token in bytes, in the worker's model.
ROWS, LENGTH, TOKEN = 2, 96, 16 * 4


@pytest.fixture(scope="module")
def found(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["sequence", "sequence, model, fully sharded"])
def test_losses_are_those_of_one_device(found, name):
    losses, alone = found[name]["losses"], found[None]["losses"]
    assert max(abs(a - b) for a, b in zip(losses, alone, strict=True)) <= 1e-5
    assert len({round(loss, 4) for loss in alone}) == len(alone)


@pytest.mark.exhaustive
def test_keys_and_values_pass_from_device_to_device(found):
    by_name = {}
    for name, size, devices in found["sequence"]["exchanged"]:
        by_name.setdefault(name, []).append((size, devices))
    # No device gathers rows. The part of a row: key and value forward, and backward with their gradients, which come home.
    assert set(by_name) == {"all-reduce", "collective-permute"}
    part, sizes = ROWS * LENGTH * TOKEN // 8, [size for size, _ in by_name["collective-permute"]]
    assert sizes.count(part) == 2 + 4 + 2
    # Two halves of query, key, value and context forward, and of their gradients backward.
    assert sizes.count(part // 2) == 2 * 4 + 2 * 4
    # Gradients of the weights.
    assert {devices for _, devices in by_name["all-reduce"]} == {8}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of other backends")
def test_other_backends_are_refused():
    with pytest.raises(training.DistributionError, match="KERAS_BACKEND=jax"):
        training.distributed(lambda: None, sequence_parallel=2)
