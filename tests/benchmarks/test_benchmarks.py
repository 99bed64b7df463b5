"""Quick benchmarks run at toy size, and what they print is what they write. Nothing here asserts speed."""

import sys

import numpy as np
import pytest

from benchmark_reports import ROOT, Command, check_table

pytestmark = pytest.mark.slow

COMMANDS = {
    "grammar": Command(
        ["grammar"],
        {"grammar", "valid", "finished", "extra_ms", "extra_percent"},
    ),
    "conversation": Command(
        ["conversation"],
        {"engine", "seconds", "calls", "most_in_a_turn", "tokens_read", "same_answers", "from_whole", "bit_equal"},
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_is_the_json(name, reports):
    check_table(reports[name], COMMANDS[name].columns)


def test_engines_talk_alike_and_read_a_turn_in_one_call(reports):
    rows = reports["conversation"][1]["rows"]
    assert [row["engine"] for row in rows] == ["keras", "onnx"]
    for row in rows:
        assert row["same_answers"] == "4/4"
        assert (row["reading_calls"], row["most_in_a_turn"]) == (4, 1)
        assert row["tokens_read"] >= row["tokens"] > 60
        assert row["from_whole"] < 1e-5
        assert row["bit_equal"]


def _import(name):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return __import__(name)
    finally:
        sys.path.pop(0)


def test_the_flops_of_gpt2_small():
    """124,439,808 parameters: 6 N T and 12 L T² D of one sequence of 1024."""
    flops, networks = _import("flops"), _import("networks")
    measures = networks.Measures(num_layers=12, hidden_dim=768, length=1024)
    assert flops.training_flops(124_439_808, measures, 1024, 1) == 764_558_180_352 + 115_964_116_992


def test_the_peak_of_a_device_by_its_name():
    flops = _import("flops")
    assert flops.peak_tflops("NVIDIA H100 PCIe") == 756
    assert flops.peak_tflops("NVIDIA A100-SXM4-80GB") == 312
    assert flops.peak_tflops("NVIDIA L40S") == 362
    assert flops.peak_tflops("an abacus") is None


def test_rivals_take_turns_and_the_ratio_is_of_neighboring_turns():
    measure = _import("measure")
    called = []

    def rival(name, seconds):
        return lambda: called.append(name) or measure.Turn(seconds * len(called), seconds)

    turns = measure.take_turns({"a": rival("a", 1), "b": rival("b", 2)}, rounds=2)
    assert called == ["a", "b", "b", "a"]
    assert [turn.wall for turn in turns["a"]] == [1, 4]
    found = measure.ratio(turns["a"], turns["b"])  # 1/4 and 4/6
    assert found == {"ratio": 0.458, "low": 0.354, "high": 0.562, "cpu_ratio": 0.5}


def test_networks_that_differ_are_refused():
    networks = _import("networks")
    tiny = networks.ENCODER._replace(**networks.TINY)
    networks.same_weights(networks.our_encoder(tiny), networks.plain_encoder(tiny))
    with pytest.raises(AssertionError, match="keras_layers"):
        networks.same_weights(networks.our_encoder(tiny), networks.plain_encoder(tiny._replace(num_layers=2)))


def test_kerashub_with_our_weights_computes_what_ours_does():
    pytest.importorskip("keras_hub")
    networks, hub_weights = _import("networks"), _import("hub_weights")
    tiny = networks.ENCODER._replace(**networks.TINY, vocabulary_size=50, dropout=0.0)._replace(num_layers=2)
    random = np.random.default_rng(0)
    images = random.random((2, tiny.image_size, tiny.image_size, 3), "float32")
    text = {"token_ids": random.integers(0, 50, (2, 8)), "padding_mask": np.arange(8) < np.array([[8], [5]])}
    for ours, hub, inputs in (
        (networks.our_vit, networks.hub_vit, images),
        (networks.our_encoder, networks.hub_encoder, text),
    ):
        model = networks.trained_looking(ours(tiny))
        peer = hub_weights.with_our_weights(hub(tiny), model)
        is_text = np.asarray(text["padding_mask"]) if inputs is text else ...
        expected = np.asarray(model(inputs, training=False))[is_text]
        np.testing.assert_allclose(np.asarray(peer(inputs, training=False))[is_text], expected, atol=1e-5)
