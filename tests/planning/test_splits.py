"""Splits over devices: bytes of rings, bubbles of pipelines, memory by stages of ZeRO, and the search, by hand."""

import json
import pathlib

import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.export.commands import main as cli
from keras_transformer.planning import Device, PlanningError, Reached, Split, search
from keras_transformer.planning.communication import (
    Fabric,
    block_sums,
    gather_bytes,
    model_sums,
    reduce_bytes,
    replica_bytes,
)
from keras_transformer.planning.graph.stages import blocks_of_stages
from keras_transformer.planning.planner import Planner

PUBLISHED = pathlib.Path(__file__).parents[2] / "benchmarks" / "published_trainings.json"
LENGTH = 16
# Matrix products take no time beside moves; a gigabyte per second each way, on the link and the network.
DEVICE = Device(1e9, 1.0, 1.0, 2.0, network=2.0, reached=Reached(1.0, 1.0, 1.0, 0.0))


@pytest.fixture(scope="module")
def model():
    with unallocated():
        return tasks.LanguageModel(models.Decoder(models.Size(8, 32, 8, 64), 48, max_sequence_length=LENGTH))


@pytest.fixture(scope="module")
def planner(model):
    return Planner(model, DEVICE, length=LENGTH, optimizer="adam", reuse=True)


def test_rings_by_hand():
    # Each of 4 devices sends 3 of the 4 quarters, once to gather, twice to sum.
    assert (gather_bytes(400.0, 4), reduce_bytes(400.0, 4), reduce_bytes(400.0, 1)) == (300.0, 600.0, 0.0)
    split = Split(data=4)
    assert replica_bytes(split, 200.0, 400.0, 3) == 600.0
    # The gradients are summed in parts and the new weights gathered.
    assert replica_bytes(split._replace(zero=1), 200.0, 400.0, 3) == 300.0 + 150.0
    # In each of 3 micro batches the weights are gathered twice and the gradients summed.
    assert replica_bytes(split._replace(zero=3), 200.0, 400.0, 3) == 3 * (150.0 + 150.0 + 300.0)


# Sums forward; backward, and backward where the gradients of an input are not added first.
SUMS = {
    "dense": ({}, (2, 2, 4)),
    "gated": ({"feedforward": "gated"}, (2, 2, 5)),
    "experts": ({"feedforward": "mixture_of_experts"}, (2, 2, 5)),
    "attention only": ({"feedforward": None}, (1, 1, 3)),
    "parallel, one norm": ({"parallel": "one_norm"}, (1, 1, 4)),
    "parallel, two norms": ({"parallel": "two_norms"}, (1, 2, 4)),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_over_the_devices_that_share_a_block(name):
    options, expected = SUMS[name]
    with unallocated():
        model = models.Decoder(models.Size(1, 16, 2, 32), 48, **options)
    block = model.get_layer("decoder_block_0")
    assert (*block_sums(block), block_sums(block, merged=False)[1]) == expected


def test_sums_of_a_model_with_cross_attention():
    with unallocated():
        model = models.Transformer(models.Size(3, 16, 2, 32), 48)
    # Two in each block of the encoder, three in each of the decoder.
    assert model_sums(model) == (3 * (2 + 3), 3 * (2 + 3))


def test_published_trainings_name_their_sources_and_devices():
    cases = {case["name"]: case for case in json.loads(PUBLISHED.read_text())}
    assert all("arXiv" in case["source"] and len(case["reported"]) == 1 for case in cases.values())
    devices = {name: Split(**case["split"]).devices for name, case in cases.items()}
    assert devices["Megatron 145.6B"] == 1536
    assert devices["MT-NLG 530B, 3,360 GPUs"] == 3360
    assert devices["Llama 3 405B, 16,384 GPUs"] == 16384
    assert devices["PaLM 540B"] == 6144
    for name, case in cases.items():
        assert Split(**case["split"]).micro_batches(case["batch_size"] // case["split"]["data"]) >= 1, name


def test_rings_within_a_node_and_between_nodes():
    device = Device(1.0, 1.0, 1.0, link=600.0, network=50.0, node=8, reached=Reached(link=0.5))
    # Half of 600 GB/s each way, of which half is reached.
    assert Fabric(device, Split(data=8)).replicas == 150e9
    # 8 devices of a node share the ring that leaves it: 8 x 12.5, or with 4 that share weights 2 x 12.5 GB/s.
    assert Fabric(device, Split(data=16)).replicas == 100e9
    assert Fabric(device, Split(data=4, tensor=4)).replicas == 25e9
    assert Fabric(device, Split(data=4, tensor=4)).tensor == 150e9
    assert Fabric(device, Split(pipeline=2, tensor=8)).stages == 12.5e9


def test_a_pipeline_waits_for_all_but_one_of_its_stages(planner):
    found = planner.training(Split(pipeline=4, micro_batch=1), 8)
    times = found.times
    busy = times.products + times.bandwidth + times.exchange
    update = 7 * 4 * (8 * 2 * 32 * (4 * 32 + 64) // 4)  # Bytes for a quarter of the kernels, at least.
    one = (busy - update / 1e9) / 8
    assert times.bubble == pytest.approx(3 * one, rel=0.1)
    halved = planner.training(Split(pipeline=4, micro_batch=1, chunks=2), 8).times
    assert halved.bubble == pytest.approx(times.bubble / 2, rel=0.2)


def test_stages_have_their_share_of_the_blocks(planner):
    assert blocks_of_stages(9, 4) == [2, 3, 2, 2]
    whole, half = (planner.training(Split(pipeline=stages, micro_batch=1), 2).memory for stages in (1, 2))
    block = 4 * (4 * 32**2 + 4 * 32 + 2 * 32 * 64 + 64 + 32 + 4 * 32)
    # The tied embedding is in both stages.
    assert whole.weights - half.weights == pytest.approx(4 * block, rel=0.05)


def test_memory_by_stages_of_zero(planner):
    plain, *stages = (planner.training(Split(data=4, zero=zero), 2).memory for zero in (0, 1, 2, 3))
    for stage, found in enumerate(stages, 1):
        assert found.optimizer == plain.optimizer / 4
        assert found.gradients == plain.gradients / (4 if stage > 1 else 1)
        assert found.weights == plain.weights / (4 if stage > 2 else 1)
    totals = [plain.training, *(each.training for each in stages)]
    assert totals == sorted(totals, reverse=True)
    assert plain.training - stages[0].training == plain.optimizer * 3 / 4


def test_batches_between_two_traced_ones_and_beyond_are_lines(model, planner):
    exact = Planner(model, DEVICE, length=LENGTH, optimizer="adam")
    for split, batch_size in ((Split(), 7), (Split(tensor=2, data=2), 5)):
        one, other = (each.training(split, batch_size) for each in (planner, exact))
        assert one.memory == pytest.approx(other.memory, rel=0.01)
        # Other tensors of so small a model are small beside others, and stay inside kernels.
        assert list(one.times) == pytest.approx(list(other.times), rel=0.15)


def test_exchange_hides_behind_the_backward_pass(planner):
    shown = planner.training(Split(data=4, overlap=False), 2)
    hidden = planner.training(Split(data=4), 2)
    assert shown.exchange == hidden.exchange == pytest.approx(1.5 * shown.memory.gradients / 1e9)
    assert shown.times.exchange == shown.exchange
    assert hidden.times.exchange < shown.times.exchange


def test_search_finds_the_best_of_all_splits_by_hand(model, planner):
    plans = search(model, DEVICE, 4, batch_size=8, length=LENGTH, optimizer="adam")
    splits = [
        Split(data, tensor, pipeline, zero, micro)
        for data, tensor, pipeline in ((4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2), (1, 1, 4))
        for zero in (0, 1, 3)
        for micro in (1, 2, 4, 8)
        if 8 // data % micro == 0 and not (zero == 3 and pipeline > 1)
    ]
    by_hand = min(splits, key=lambda split: sum(planner.training(split, 8 // split.data).times))
    assert plans[0].split[:3] == by_hand[:3]
    assert plans[0].step <= sum(planner.training(by_hand, 8 // by_hand.data).times)
    assert [plan.step for plan in plans] == sorted(plan.step for plan in plans)
    assert len({plan.split[:3] for plan in plans}) == len(plans) == 5


@pytest.mark.exhaustive
def test_search_over_a_slow_link_moves_the_fewest_bytes(model):
    # A pipeline sends hidden states of 8 · 16 · 32 numbers each way; other splits send 70,000 gradients, or hidden states
    # four times in each block.
    plans = search(model, DEVICE._replace(link=1e-3, network=1e-3), 4, batch_size=8, length=LENGTH)
    assert plans[0].split[:3] == (1, 1, 4)
    assert plans[0].exchange == pytest.approx(2 * 8 * 16 * 32 * 4 / 0.5e6)


@pytest.mark.exhaustive
def test_search_keeps_to_the_memory_and_names_the_nearest_that_fits(model, planner):
    least = planner.training(Split(data=2, zero=3, micro_batch=1, recompute=1), 4).memory.training
    few = DEVICE._replace(memory=least / 1e9 * 1.001)
    assert all(plan.training <= few.memory * 1e9 for plan in search(model, few, 2, batch_size=8, length=LENGTH))
    small = DEVICE._replace(memory=least / 1e9 * 0.8)
    with pytest.raises(PlanningError, match=r"no split of 1 devices fits: .* [248] devices fit, as "):
        search(model, small, 1, batch_size=4, length=LENGTH)


@pytest.mark.exhaustive
def test_command_searches(tmp_path, capsys):
    words = ["plan", "gpt2:small", "--device", "l4", "--devices", "4", "--length", "64", "--search"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "batch     32 x 64 tokens of all devices" in printed
    header = next(index for index, line in enumerate(printed) if line.startswith("split "))
    assert printed[header].split("  ")[-1] == "bound by"
    assert printed[header + 1].split()[-1] in ("products", "bandwidth", "exchange", "bubble")
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(each["split"]["data"] * each["split"]["tensor"] * each["split"]["pipeline"] == 4 for each in found)
    assert sum(found[0]["times"].values()) == pytest.approx(found[0]["step"])
