"""Weights and optimizer split over eight devices: how much each has, what they exchange, and the losses of one device."""

from collections import Counter
from pathlib import Path

import keras
import pytest

from keras_transformer import models, training
from keras_transformer.training.distribution.communication import collectives

WORKER = Path(__file__).with_name("fully_sharded_worker.py")
ONE_DEVICE = 1e-5  # How far the losses of a step may be from those of one device.
# Batch, length and width of the worker's model.
ROWS, LENGTH, WIDTH, FLOAT = 8, 6, 16, 4


@pytest.fixture(scope="module")
def quick(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER, "fully sharded", "model")


@pytest.fixture(scope="module")
def every(results_of_worker):
    pytest.importorskip("jax")
    return results_of_worker(WORKER)


def bytes_by_name(found):
    total = Counter()
    for name, size, _ in found["collectives"]:
        total[name] += size
    return total


def check_losses(found, name):
    losses, alone = found[name]["losses"], found[None]["losses"]
    assert len(losses) == len(alone) == 10
    assert max(abs(a - b) for a, b in zip(losses, alone, strict=True)) <= ONE_DEVICE
    assert alone[0] != alone[-1]


def check_share(found, whole):
    """Every device has an eighth of everything, but for the variables named."""
    assert {path.split("/", 1)[1] for path in found["whole"] if path.startswith("adam")} >= {
        "iteration",
        "learning_rate",
    }
    kept = {path for path in found["whole"] if not path.startswith("adam")}
    assert kept == whole
    remainder = sum(found["weights"][path] for path in kept) * 3 + 8  # With both moments; two numbers of the optimizer.
    assert found["bytes"] == [(found["total"] - remainder) // 8 + remainder] * 8


# Four heads of four channels do not divide by eight.
BIASES_OF_HEADS = {f"decoder_block_0/self_attention/{name}/bias" for name in ("query", "key", "value")}


@pytest.mark.slow
def test_eight_devices_with_an_eighth_of_the_weights_train_as_one(quick):
    check_losses(quick, "fully sharded")
    check_share(quick["fully sharded"], BIASES_OF_HEADS)


@pytest.mark.slow
def test_weights_are_gathered_and_gradients_summed(quick):
    found = quick["fully sharded"]
    total, weights = bytes_by_name(found), sum(found["weights"].values())
    split = weights - sum(found["weights"][path] for path in BIASES_OF_HEADS)
    # Each weight once, and at most the ids of the tokens, whose rows of the table have a gradient.
    assert split <= total["all-gather"] <= split + ROWS * LENGTH * FLOAT
    # The gradient of each weight once, that of the tied table in one or two parts, and two sums of the loss.
    table, positions = (found["weights"][f"{name}_embedding/embeddings"] for name in ("token", "position"))
    assert weights - positions <= total["all-reduce"] <= weights + table + 8
    # Activations are not exchanged.
    assert total["all-to-all"] + total["collective-permute"] <= ROWS * WIDTH * FLOAT


@pytest.mark.slow
def test_four_devices_that_share_layers_sum_four_times_in_a_block(quick):
    check_losses(quick, "model")
    activations = ROWS // 2 * LENGTH * WIDTH * FLOAT
    sums = [size for name, size, devices in quick["model"]["collectives"] if devices == 4 and size >= activations]
    # Two sublayers, forward and backward: query, key and value share a sum, as do gate and hidden layer. One more each for
    # the embedding and the gradient of the head.
    assert sum(sums) == (4 + 2) * activations
    # Of the loss only: the maxima and the sums of the softmax, and the logits of the labels.
    others = [size for _, size, devices in quick["model"]["collectives"] if devices == 4 and size < activations]
    assert sum(others) <= 3 * ROWS // 2 * LENGTH * FLOAT


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["data", "fully sharded", "model", "model, fully sharded", "recomputed, fully sharded"]
)
def test_every_split_trains_as_one(every, name):
    check_losses(every, name)


@pytest.mark.exhaustive
def test_layers_and_replicas_share_the_weights(every):
    found = every["model, fully sharded"]
    assert [path for path in found["whole"] if not path.startswith("adam")] == []
    # An eighth, but for the weights that only one of both axes divides.
    assert 1 / 8 < found["bytes"][0] / found["total"] < 1 / 6


@pytest.mark.exhaustive
def test_what_data_parallelism_exchanges(every):
    found = every["data"]
    assert set(bytes_by_name(found)) == {"all-reduce"}
    weights = sum(found["weights"].values())
    # Gradients, and the two sums of the loss; the gradient of the tied table is summed as two parts.
    assert 0 <= bytes_by_name(found)["all-reduce"] - weights - 8 <= found["weights"]["token_embedding/embeddings"]


def test_collectives_are_read_in_every_notation():
    program = """
      %a = f32[8,4]{1,0} all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}
      %b = (bf16[2]{0}, s32[]) all-reduce(%x, %y), replica_groups={{0,1,2},{3,4,5}}, to_apply=%add
      %c = f32[4]{0} reduce-scatter(%x), replica_groups=mesh['a'=2,'b'=4] {'a','b':(1)2}, dimensions={0}
      %i = f32[4]{0} all-reduce(%x), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}, to_apply=%add
      %d = (f32[2]{0}, f32[8]{0}) all-gather-start(%x), replica_groups=[1,4]<=[4], dimensions={0}
      %e = (pred[7], pred[7]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}
      %f = f32[8]{0} all-gather-done(%d)
      %g = f32[8]{0} add(%a, %b), metadata={op_name="all-reduce("}
%all-reduce-scatter.1 (input: f32[8,4]) -> f32[2,4] {
      %h = f32[8,4]{1,0} all-reduce(%x), replica_groups=[1,4]<=[4], to_apply=%add
    """
    found = collectives(program)
    assert [tuple(each) for each in found] == [
        ("all-gather", 128, 4),
        ("all-reduce", 8, 3),
        ("reduce-scatter", 64, 4),
        ("all-reduce", 16, 4),
        ("all-gather", 32, 4),
        ("collective-permute", 7, 2),
        ("reduce-scatter", 128, 4),
    ]
    assert [each.sent for each in found] == [96, pytest.approx(2 / 3 * 2 * 8), 48, 24, 24, 7, 96]


def test_a_layout_by_layers_and_by_data():
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), [f"cpu:{index}" for index in range(8)])
    layouts = models.layout_map(models.Decoder(models.Size(1, 16, 4, 24), 10), mesh, data_axis="batch")
    block = "decoder_block_0"
    expected = {
        "token_embedding/embeddings": ("batch", "model"),
        f"{block}/self_attention/query/kernel": ("batch", "model", None),
        f"{block}/self_attention/query/bias": ("model", "batch"),
        f"{block}/feedforward/hidden/kernel": ("batch", "model"),
        f"{block}/feedforward/hidden/bias": ("model",),
        f"{block}/feedforward/output/kernel": ("model", "batch"),
        "final_norm/gamma": ("batch",),
    }
    assert {path: tuple(layouts[path].axes) for path in expected} == expected


def test_frozen_weights_are_split_too():
    mesh = keras.distribution.DeviceMesh((8, 1), ("batch", "model"), [f"cpu:{index}" for index in range(8)])
    model = models.Decoder(models.Size(1, 16, 4, 24), 10)
    model.trainable = False
    assert tuple(models.layout_map(model, mesh, data_axis="batch")["final_norm/gamma"].axes) == ("batch",)


def test_both_axes_must_be_of_the_mesh():
    mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["cpu:0", "cpu:1"])
    model = models.Encoder(models.Size(1, 8, 2, 16), 10)
    with pytest.raises(ValueError, match="no axis 'rows'"):
        models.layout_map(model, mesh, data_axis="rows")
    with pytest.raises(ValueError, match="must differ"):
        models.layout_map(model, mesh, data_axis="model")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of other backends")
def test_other_backends_are_refused():
    with pytest.raises(training.DistributionError, match="KERAS_BACKEND=jax"):
        training.distributed(lambda: None, fully_sharded=True)
    with pytest.raises(training.DistributionError, match="tensorflow"):
        training.communication(keras.Sequential(), [0.0], [0.0])
