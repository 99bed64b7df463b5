"""Trains a small language model in one process, on two devices, and by two workers of which one is killed; prints losses.

Workers are forked from a process that has imported Keras and done nothing with it: importing is most of the time.
"""

import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["GRPC_VERBOSITY"] = "NONE"

import keras
import numpy as np

from keras_transformer import data, models, tasks, training

EPOCHS, STEPS, ROWS, LENGTH = 2, 4, 4, 10
KILLED_AT, SAVE_FREQ = 6, 2  # Of the steps of both epochs.


class Journal(keras.callbacks.Callback):
    """Appends step and running loss to a file after each batch; one worker ends in the midst of one."""

    def __init__(self, path, first_step, killed):
        super().__init__()
        self.path, self.first_step, self.killed, self.epoch = path, first_step, killed, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        step = self.epoch * STEPS + batch
        if self.killed and step == KILLED_AT - 1:
            wait_for_lines(self.path.with_name("losses_0"), step)  # The other may still be getting the last sums.
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        step = self.epoch * STEPS + batch
        if step >= self.first_step:
            with open(self.path, "a") as file:
                file.write(json.dumps([step, float(logs["loss"])]) + "\n")


def wait_for_lines(path, count, seconds=60):
    """Returns when a file has so many lines, or does not get them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (not path.exists() or len(path.read_text().splitlines()) < count):
        time.sleep(0.05)


def stream():
    """Rows of very different lengths: the mean over tokens is not that of the means of the workers."""

    def make(epoch, step):
        drawn = np.random.default_rng([epoch, step])
        token_ids = drawn.integers(1, 20, (ROWS, LENGTH + 1)).astype("int32")
        mask = np.arange(LENGTH) < np.array([[LENGTH], [7], [2], [1]])
        labels = np.where(mask, token_ids[:, 1:], -100)
        return {"token_ids": token_ids[:, :-1], "padding_mask": mask}, labels

    return data.BatchStream(make, STEPS, fixed_shapes=True)


def build():
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 16, 2, 32), vocabulary_size=20))
    training.recompute_blocks(model)
    return model


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


def on_one_device():
    model = build()
    compile_model(model)
    return model


def on_many():
    return training.distributed(build, compile_model)


def train(folder, name, make, killed=False):
    """Goes on from the checkpoint in `folder`, and keeps its losses there in a file."""
    folder = Path(folder)
    model, batches = make(), stream()
    callbacks = [training.TrainingCheckpoint(folder, batches, SAVE_FREQ)]
    first_step = 0
    if callbacks[0].path.exists():
        from keras_transformer.training.checkpointing.snapshot import read_metadata

        metadata = read_metadata(callbacks[0].path)
        first_step = metadata["epoch"] * STEPS + metadata["step"]
    callbacks.append(Journal(folder / name, first_step, killed))
    model.fit(batches.repeat(), steps_per_epoch=STEPS, epochs=EPOCHS, callbacks=callbacks, verbose=0)


def in_a_fork(function, *arguments, quiet=True):
    pid = os.fork()
    if pid:
        return pid
    try:
        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # What a broken connection is worth to it, and that is much.
        function(*arguments)
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
        os._exit(1)


def alone(folder):
    train(folder, "losses", on_one_device)


def mirrored(folder):
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    train(folder, "losses", on_many)


def worker(folder, ports, index, killed):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    train(folder, f"losses_{index}", on_many, killed=killed and index == 1)


def workers(folder, killed=False):
    """Both to their end; where one is killed, the other is ended too, as a cluster does it that starts both anew."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    pids = [in_a_fork(worker, folder, ports, index, killed) for index in range(2)]
    status = os.waitstatus_to_exitcode(os.waitpid(pids[1], 0)[1])
    if killed:
        assert status == -signal.SIGKILL, status
        time.sleep(0.5)
        os.kill(pids[0], signal.SIGKILL)
    other = os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1])
    assert killed or (status, other) == (0, 0), (status, other)


def finish(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def losses(folder, name="losses"):
    """Step -> the losses found for it, by each that has done it."""
    found = {}
    for line in (Path(folder) / name).read_text().splitlines():
        step, loss = json.loads(line)
        found.setdefault(step, []).append(loss)
    return found


def main():
    root = Path(sys.argv[1])
    for name in ("alone", "mirrored", "workers"):
        (root / name).mkdir()
    for pid in [in_a_fork(alone, root / "alone"), in_a_fork(mirrored, root / "mirrored")]:
        finish(pid)
    workers(root / "workers", killed=True)
    broken = losses(root / "workers", "losses_0")
    shutil.copytree(root / "workers", root / "one of two")
    fewer = in_a_fork(alone, root / "one of two")
    workers(root / "workers")
    finish(fewer)
    result = {name: losses(root / name) for name in ("alone", "mirrored", "one of two")}
    result |= {f"worker_{index}": losses(root / "workers", f"losses_{index}") for index in range(2)}
    result["before the kill"] = broken
    print(json.dumps(result))


if __name__ == "__main__":
    main()
