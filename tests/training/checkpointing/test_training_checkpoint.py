import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.data import BatchStream
from keras_transformer.training import (
    AveragedWeights,
    CorruptCheckpointError,
    TrainingCheckpoint,
    TrainingCheckpointError,
)
from keras_transformer.training.checkpointing.directory_lock import DirectoryLock
from keras_transformer.training.checkpointing.snapshot import read_metadata, read_snapshot, write_snapshot

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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_more_epochs_later_and_none_left(tmp_path, whole):
    # The average takes the place of the weights at the end of `fit`; going on, they are what they were.
    fit(tmp_path, epochs=2)
    assert fit(tmp_path, seed=99) == whole
    assert fit(tmp_path, seed=98) == whole


@pytest.mark.exhaustive
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


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_file_falls_back_to_the_one_before(tmp_path, whole):
    with pytest.raises(Broken):
        fit(tmp_path, break_after=STEPS + 5)
    newest, previous = tmp_path / "checkpoint.npz", tmp_path / "checkpoint.previous.npz"
    steps = [read_metadata(path)["epoch"] * STEPS + read_metadata(path)["step"] for path in (previous, newest)]
    assert steps == [STEPS + 2, STEPS + 4]
    damage(newest)
    kept = previous.read_bytes()
    warned = pytest.warns(UserWarning, match=r"checkpoint\.npz' is not a complete.*before it, .*previous\.npz")
    with warned, pytest.raises(Broken):
        fit(tmp_path, seed=99, break_after=5)  # Two batches are skipped, and one save follows.
    # The complete file is not replaced by the damaged one.
    assert previous.read_bytes() == kept
    assert read_metadata(newest)["step"] == 4
    assert fit(tmp_path, seed=98) == whole


def test_a_missing_file_falls_back_with_a_warning(tmp_path, whole):
    with pytest.raises(Broken):
        fit(tmp_path, break_after=STEPS + 5)
    (tmp_path / "checkpoint.npz").unlink()
    with pytest.warns(UserWarning, match="is missing"):
        assert fit(tmp_path, seed=99) == whole


def test_refuses_two_damaged_files(tmp_path):
    fit(tmp_path, epochs=1)
    for path in tmp_path.glob("*.npz"):
        damage(path)
    with pytest.raises(CorruptCheckpointError, match=r"checkpoint\.npz' is not a complete checkpoint"):
        fit(tmp_path)


def test_refuses_metadata_of_other_types(tmp_path):
    for name, value in (("epoch", -1), ("step", "3"), ("steps_per_epoch", 1.5), ("history", []), ("data", None)):
        metadata = {
            "epoch": 0,
            "step": 0,
            "steps_per_epoch": STEPS,
            "data": "one",
            "history": {"epoch": [], "logs": {}},
        }
        write_snapshot(tmp_path / "checkpoint.npz", {"model": []}, {**metadata, name: value})
        with pytest.raises(CorruptCheckpointError, match=f"its metadata is .*'{name}': "):
            fit(tmp_path)


def test_refuses_a_second_training_in_the_directory(tmp_path):
    entered, leave = threading.Event(), threading.Event()

    class Wait(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            entered.set()
            assert leave.wait(60)

    first = threading.Thread(target=fit, args=(tmp_path,), kwargs={"epochs": 1, "extra": [Wait()]})
    first.start()
    assert entered.wait(60)
    try:
        with pytest.raises(TrainingCheckpointError, match="is in use: a training in thread"):
            fit(tmp_path)
    finally:
        leave.set()
        first.join()
    fit(tmp_path, epochs=1)


LOCKING = """
import os, sys, time
from keras_transformer.training.checkpointing.directory_lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
lock.acquire()
if not os.fork():
    time.sleep(60)
print("locked", flush=True)
time.sleep(60)
"""


def test_a_lock_ends_with_its_process(tmp_path):
    lock = DirectoryLock(tmp_path)
    other = subprocess.Popen([sys.executable, "-c", LOCKING, tmp_path], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(TrainingCheckpointError, match=f"a training in process {other.pid} on "):
            lock.acquire()
        other.kill()
        other.wait()
        lock.acquire()  # Although a child of that process is still there.
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        lock.release()


def test_a_training_that_failed_does_not_lock_the_next_one(tmp_path):
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    second.acquire()  # The same thread: the first cannot be running.
    first.release()  # No longer its lock.
    command = [sys.executable, "-c", LOCKING, tmp_path]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "TrainingCheckpointError" in refused.stderr


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


def test_every_damaged_byte_is_a_typed_error_or_changes_nothing(tmp_path):
    path = tmp_path / "state"
    write_snapshot(path, variables((1.5, "float32"), ([3, 4], "int16")), {"step": 3})
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [content[:length] for length in range(0, len(content), 31)]
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        damaged.append(bytes(changed))
    refused = 0
    for each in damaged:
        path.write_bytes(each)
        groups = variables((0.0, "float32"), ([0, 0], "int16"))
        try:
            read_metadata(path)
            assert read_snapshot(path, groups) == {"step": 3}
        except CorruptCheckpointError:
            refused += 1
            assert float(groups["model"][0]) == 0.0
        else:
            assert [keras.ops.convert_to_numpy(each).tolist() for each in groups["model"]] == [1.5, [3, 4]]
    assert refused > len(damaged) / 2


def test_a_snapshot_takes_no_more_memory_than_its_file(tmp_path):
    path = tmp_path / "state"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.npy", bytes(2**20))
    with pytest.raises(CorruptCheckpointError, match=r"'metadata\.npy' is compressed"):
        read_metadata(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**45,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.npy", header.getvalue())
    with pytest.raises(CorruptCheckpointError, match="with 0 bytes"):
        read_metadata(path)


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
