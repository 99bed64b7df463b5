"""Tests of this folder on JAX, where the state of a training is not in the variables of the model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TESTS = {
    FOLDER / "test_check_data.py": ["test_fit_stops_before_the_step", "test_ids_out_of_the_vocabulary"],
    FOLDER / "test_stop_at_nan.py": [
        "test_logarithm_of_zero_in_the_middle_of_a_training[compiled0]",
        "test_gradient_of_a_square_root_at_zero",
        "test_update_that_overflows",
        "test_float16_goes_on_after_infinite_gradients",
    ],
    FOLDER / "test_loss_spikes.py": ["test_a_spike_is_reported_with_its_batch"],
    FOLDER / "test_dead_experts.py": ["test_counts_go_on_over_epochs_with_validation"],
    FOLDER / "test_gradients_by_layer.py": [
        "test_norms_of_a_linear_model",
        "test_a_scaled_loss_does_not_scale_the_norms",
    ],
    FOLDER / "test_find_learning_rate.py": ["test_training_afterwards_is_as_if_there_had_been_none"],
    FOLDER.parent / "optimizers" / "test_averaged_weights.py": ["test_accumulated_gradients"],
}


@pytest.mark.exhaustive
def test_on_jax():
    selected = [f"{path}::{name}" for path, names in TESTS.items() for name in names]
    command = [sys.executable, "-m", "pytest", "-n0", "-m", "not exhaustive", "-p", "no:cacheprovider", *selected]
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=FOLDER.parents[2])
    assert run.returncode == 0, run.stdout[-3000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout[-3000:]
    assert int(passed[1]) >= len(selected)
