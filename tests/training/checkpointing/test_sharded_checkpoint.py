"""A training goes on from a sharded checkpoint on 8, 4 and 1 devices, with the losses of one device."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_transformer import training

WORKER = Path(__file__).with_name("sharded_checkpoint_worker.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    pytest.importorskip("orbax.checkpoint")
    command = [sys.executable, str(WORKER), str(tmp_path_factory.mktemp("checkpoints"))]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.exhaustive
def test_a_training_goes_on_on_other_devices(found):
    assert len(found["alone"]) == len(found["many"]) == 4
    assert max(abs(a - b) for a, b in zip(found["alone"], found["many"], strict=True)) <= 1e-5


@pytest.mark.exhaustive
def test_two_checkpoints_are_kept(found):
    # One after each batch and each epoch; the second epoch was interrupted after its first batch.
    assert found["kept"] == [11, 12]


@pytest.mark.exhaustive
def test_checkpoints_of_other_models_are_refused(found):
    (name, message), warned = found["other model"]
    assert name == "TrainingCheckpointError"
    assert "12' holds token_embedding/embeddings as float32 (24, 16); token_embedding/embeddings of this" in message
    assert warned == []


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_replaced_by_what_follows_the_one_before_it(found):
    losses, warned = found["damaged"]
    # The one before it is from the last batch of the same epoch.
    assert max(abs(a - b) for a, b in zip(losses, found["alone"], strict=True)) <= 1e-5
    assert len(warned) == 1
    assert "12' is damaged: " in warned[0]
    assert warned[0].endswith("/11'.")
    assert "\n" not in warned[0]
    assert found["kept after damage"] == [11, 12]


@pytest.mark.exhaustive
def test_only_damaged_checkpoints_are_refused(found):
    (name, message), warned = found["all damaged"]
    assert name == "CorruptCheckpointError"
    assert "12' is damaged: " in message
    assert "\n" not in message
    assert warned == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of other backends")
def test_other_backends_are_refused(tmp_path):
    with pytest.raises(training.DistributionError, match="tensorflow"):
        training.ShardedCheckpoint(tmp_path)
