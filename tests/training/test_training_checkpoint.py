import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.data import BatchStream
from keras_transformer.training import AveragedWeights, TrainingCheckpoint, TrainingCheckpointError
from keras_transformer.training.snapshot import read_snapshot, write_snapshot

pytestmark = pytest.mark.slow

STEPS = 6


class Broken(Exception):
    pass


class BreakOff(keras.callbacks.Callback):
    """Raises after so many batches that were trained on."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_train_batch_end(self, batch, logs=None):
        self.batches -= 1
        if not self.batches:
            raise Broken


def stream(steps=STEPS, fingerprint="one"):
    def make(epoch, step):
        random = np.random.default_rng([epoch, step])
        return random.normal(size=(4, 3)).astype("float32"), random.normal(size=(4, 1)).astype("float32")

    return BatchStream(make, steps, fingerprint=fingerprint, fixed_shapes=True)


def model_of(units=5, run_eagerly=True, **options):
    layers = [
        keras.layers.Dense(units),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    optimizer = keras.optimizers.Adam(0.05, use_ema=True, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=run_eagerly, **options)
    return model


def fit(directory, seed=0, epochs=3, save_freq=2, break_after=None, batches=None, extra=(), **options):
    keras.utils.set_random_seed(seed)
    batches = batches or stream()
    model = model_of(**options)
    callbacks = [
        TrainingCheckpoint(directory, batches, save_freq),
        *extra,
        *([BreakOff(break_after)] if break_after else []),
    ]
    history = model.fit(batches.repeat(), steps_per_epoch=len(batches), epochs=epochs, callbacks=callbacks, verbose=0)
    return history.history, history.epoch, [weight.tolist() for weight in model.get_weights()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("break_after", [1, 3, STEPS, STEPS + 5])
def test_goes_on_as_if_nothing_had_happened(tmp_path, whole, break_after):
    with pytest.raises(Broken):
        fit(tmp_path, break_after=break_after)
    # Another seed: without a file, weights and dropout would be others.
    seed = 0 if break_after == 1 else 99
    assert fit(tmp_path, seed=seed) == whole


def test_several_steps_an_execution(tmp_path):
    graph = {"steps_per_execution": 2, "run_eagerly": False, "epochs": 2}
    undisturbed = fit(tmp_path / "one", **graph)
    with pytest.raises(Broken):
        fit(tmp_path / "two", break_after=4, **graph)
    assert fit(tmp_path / "two", seed=99, **graph) == undisturbed


def test_whole_epochs_alone(tmp_path, whole):
    with pytest.raises(Broken):
        fit(tmp_path, break_after=STEPS + 5, save_freq="epoch")
    assert fit(tmp_path, seed=99, save_freq="epoch") == whole


def test_more_epochs_later_and_none_left(tmp_path, whole):
    # The average takes the place of the weights at the end of `fit`; going on, they are what they were.
    fit(tmp_path, epochs=2)
    assert fit(tmp_path, seed=99) == whole
    assert fit(tmp_path, seed=98) == whole


def test_swapping_in_the_average_changes_nothing_across_a_break(tmp_path, whole):
    swap = AveragedWeights(swap_on_epoch=True)
    assert fit(tmp_path / "one", extra=[swap]) == whole
    with pytest.raises(Broken):
        fit(tmp_path / "two", extra=[AveragedWeights(swap_on_epoch=True)], break_after=STEPS + 5)
    assert fit(tmp_path / "two", seed=99, extra=[AveragedWeights(swap_on_epoch=True)]) == whole


@pytest.mark.parametrize(
    "change, message",
    [
        ({"units": 6}, r"dense.*kernel as float32 \(3, 5\)"),
        ({"batches": stream(fingerprint="other")}, "data='one'"),
        ({"batches": stream(STEPS + 1)}, "steps_per_epoch=6"),
    ],
)
def test_refuses_what_is_another_training(tmp_path, change, message):
    fit(tmp_path, epochs=1)
    with pytest.raises(TrainingCheckpointError, match=message):
        fit(tmp_path, **change)


def test_refuses_a_broken_file(tmp_path):
    fit(tmp_path, epochs=1)
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TrainingCheckpointError, match=r"checkpoint\.npz' is not a complete checkpoint"):
        fit(tmp_path)


def test_arguments():
    for save_freq in (0, "batch", True, 1.5):
        with pytest.raises(ValueError, match="save_freq"):
            TrainingCheckpoint("run", stream(), save_freq)
    with pytest.raises(ValueError, match="needs batches"):
        TrainingCheckpoint("run", save_freq=3)


def variables(*values):
    return {"model": [keras.Variable(value, dtype=dtype, trainable=False) for value, dtype in values]}


def test_snapshot_keeps_every_bit(tmp_path):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**16, 64).astype("uint16")
    half = keras.ops.convert_to_tensor(random.normal(size=7), "bfloat16")
    groups = variables(
        (half, "bfloat16"), (bits, "uint16"), (random.normal(size=(2, 3)), "float32"), (2**40 + 1, "int64")
    )
    write_snapshot(tmp_path / "a" / "state", groups, {"step": 3})
    others = variables((np.zeros(7), "bfloat16"), (bits * 0, "uint16"), (np.zeros((2, 3)), "float32"), (0, "int64"))
    assert read_snapshot(tmp_path / "a" / "state", others) == {"step": 3}
    for one, other in zip(groups["model"], others["model"], strict=True):
        assert keras.ops.convert_to_numpy(one).tobytes() == keras.ops.convert_to_numpy(other).tobytes()


def test_snapshot_is_put_in_place_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "state"
    write_snapshot(path, variables((1.0, "float32")), {"step": 1})
    written = []

    def crash(source, target):
        written.append(Path(source).stat().st_size)
        raise Broken

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(Broken):
            write_snapshot(path, variables((2.0, "float32")), {"step": 2})
    assert written[0] > 0  # The new one was whole before it would have taken the place of the old.
    groups = variables((0.0, "float32"))
    assert read_snapshot(path, groups) == {"step": 1}
    assert float(groups["model"][0]) == 1.0


def test_reading_changes_all_variables_or_none(tmp_path):
    path = tmp_path / "state"
    write_snapshot(path, variables((1.0, "float32"), ([1.0, 2.0], "float32")), {})
    groups = variables((0.0, "float32"), ([0.0, 0.0, 0.0], "float32"))
    with pytest.raises(TrainingCheckpointError, match=r"\(2,\)"):
        read_snapshot(path, groups)
    assert float(groups["model"][0]) == 0.0


def test_killed_at_any_moment(tmp_path):
    script = Path(__file__).with_name("killed_training.py")
    run = subprocess.run([sys.executable, script, tmp_path, "3"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    given = json.loads(run.stdout.splitlines()[-1])
    assert given["killed"] == 3
    assert given["results"]["broken"] == given["results"]["whole"]
    # Steps that were done anew gave the same loss, to the last bit, and no more were than lie between two saves.
    losses = {(epoch, batch): loss for epoch, batch, loss, _ in given["journals"]["whole"]}
    steps = given["results"]["whole"]["steps"]
    last = process = None
    for epoch, batch, loss, pid in given["journals"]["broken"]:
        assert loss == losses[epoch, batch]
        step = epoch * steps + batch
        assert last is None or (step == last + 1 if pid == process else step > last - given["save_freq"])
        last, process = step, pid
    assert last == len(losses) - 1
