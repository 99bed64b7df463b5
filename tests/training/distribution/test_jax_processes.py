"""Two processes of JAX, each with a half of the weights, train as one does, though one is killed and both start again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

WORKER = Path(__file__).with_name("jax_processes_worker.py")


def test_a_killed_process_is_replaced(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    command = [sys.executable, str(WORKER), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["starts"] == 2
    alone = {step: (loss, updates) for step, loss, updates in found["alone"]}
    assert sorted(alone) == list(range(6))
    assert {step for step, _, _ in found["two"]} == set(alone)
    for step, loss, updates in found["two"]:
        assert updates == alone[step][1] == step + 1
        assert loss == pytest.approx(alone[step][0], abs=1e-5)
