"""Experts split over devices: the losses of one device, and no exchange of kernels."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("experts_worker.py")
# Batch, length and width of the worker's model.
ROWS, LENGTH, WIDTH, FLOAT = 8, 6, 16, 4


@pytest.fixture(scope="module")
def found(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER)


@pytest.mark.exhaustive
def test_devices_that_share_experts_train_as_one(found):
    losses, alone = found["split"]["losses"], found["alone"]["losses"]
    assert max(abs(a - b) for a, b in zip(losses, alone, strict=True)) <= 1e-5
    assert alone[0] != alone[-1]
    assert found["split"]["loads"] == found["alone"]["loads"]
    assert sum(found["alone"]["loads"]) > 0


@pytest.mark.exhaustive
def test_each_device_has_its_experts_and_exchanges_sums_only(found):
    split = found["split"]
    assert split["held"] == split["kernels"] // 4
    activations = ROWS // 2 * LENGTH * WIDTH * FLOAT
    sums = [size for name, size, devices in split["collectives"] if name == "all-reduce" and devices == 4]
    # Four of activations in the block, one for the embedding and one for the gradient of the head. All else, such as the
    # gradients of the weights of experts and the sums of the loss, is less than one more.
    assert 6 <= sum(sums) / activations < 7
    # Tokens stay where they are: only what the router's losses need is gathered, a number for each token and expert.
    others = [each for each in split["collectives"] if each[0] != "all-reduce"]
    assert sum(size for _, size, _ in others) <= ROWS * LENGTH * 8 * FLOAT
