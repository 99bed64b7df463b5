"""Checkpoints that are loaded onto eight devices: the weights of one device, and each part of the file read once."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("sharded_loading_worker.py")
# Name of the checkpoint -> elements read, relative to those of all weights; blocks of gpt-oss are decoded whole.
CHECKPOINTS = {"llama-CausalLM": 1.0, "gpt2-LMHeadModel": 1.0, "mixtral-CausalLM": 1.0, "gpt_oss_mxfp4-CausalLM": 2.0}


@pytest.fixture(scope="module")
def loaded(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER, *CHECKPOINTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_each_device_reads_its_part(loaded, name):
    found = loaded[name]
    assert found["differ"] == []
    assert found["split"] > 0.99
    assert 1 <= round(found["read"], 2) <= CHECKPOINTS[name]
