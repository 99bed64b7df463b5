"""Ring attention on eight devices equals softmax attention on one, and no device has a whole row."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.backend.kernels.ring_attention import Ring, ring_attention

WORKER = Path(__file__).with_name("ring_worker.py")
BATCH, LENGTH, HEADS, WIDTH, DEVICES = 2, 256, 2, 16, 8
CASES = [
    "plain",
    "causal",
    "causal, three devices of odd parts",
    "grouped, masked",
    "causal, grouped, masked, heads split",
]


@pytest.fixture(scope="module")
def found(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_context_and_gradients_are_those_of_one_device(found, name):
    assert found[name]["difference"] <= 1e-5
    assert found[name]["exchanged"] == ["collective-permute"]


@pytest.mark.exhaustive
def test_no_device_has_a_whole_row_of_keys_or_scores(found):
    block, row = BATCH * HEADS * (LENGTH // DEVICES) ** 2, BATCH * LENGTH * HEADS * WIDTH
    assert found["plain"]["largest"] == block < row
    assert found["causal"]["largest"] == block // 2  # The queries; scores are a quarter of a block.


@pytest.mark.exhaustive
def test_devices_share_the_work_of_causal_rows(found):
    """Every device runs one program: of 4 n pairs of chunks, a device computes 2 n + 1 without those that are masked."""
    share = (2 * DEVICES + 1) / (4 * DEVICES)
    mean = BATCH * HEADS * LENGTH // DEVICES * WIDTH  # What backward subtracts, once.
    assert found["causal"]["work"] - mean == share * (found["plain"]["work"] - mean)


def test_rows_must_divide_by_the_devices():
    mesh = keras.distribution.DeviceMesh((2,), ("sequence",), ["cpu:0", "cpu:1"])
    x = np.ones((1, 5, 1, 2), "float32")
    with pytest.raises(ValueError, match="5 queries and 5 keys"):
        ring_attention(x, x, x, Ring(mesh, "sequence"))
    with pytest.raises(ValueError, match="4 queries and 5 keys"):
        ring_attention(x[:, :4], x, x, Ring(mesh, "sequence"))
