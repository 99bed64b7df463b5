"""Trains in one process, and in two processes of JAX that a supervisor starts again after one is killed; prints losses.

python tests/training/distribution/jax_processes_worker.py DIRECTORY
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

EPOCHS, STEPS, ROWS, LENGTH, WORDS = 2, 3, 4, 6, 24
KILLED_AT = 4  # Of the steps of both epochs.
PROCESSES = 2


def main():
    if len(sys.argv) == 2:
        supervise(Path(sys.argv[1]))
    else:
        train(Path(sys.argv[1]), *sys.argv[2:])


def train(folder, name, address=None, index=0):
    """Goes on from the checkpoint in `folder`, and appends step and loss to a file after each step."""
    import jax

    if address:
        jax.distributed.initialize(address, PROCESSES, int(index))
    import keras
    import numpy as np

    from keras_transformer import data, models, tasks, training

    keras.utils.set_random_seed(0)

    def build():
        return tasks.LanguageModel(models.Decoder(models.Size(1, 16, 4, 32), WORDS))

    def compile_model(model):
        model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())

    def make(epoch, step):
        token_ids = np.random.default_rng([epoch, step]).integers(1, WORDS, (ROWS, LENGTH + 1)).astype("int32")
        mask = np.arange(LENGTH) < np.array([[6], [2], [3], [1]])
        return {"token_ids": token_ids[:, :-1], "padding_mask": mask}, np.where(mask, token_ids[:, 1:], -100)

    class Journal(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            is_first = not (folder / "killed").exists()
            if name == "losses_1" and is_first and self.epoch * STEPS + batch == KILLED_AT:
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def on_train_batch_end(self, batch, logs=None):
            with open(folder / name, "a") as file:
                step = self.epoch * STEPS + batch
                file.write(json.dumps([step, float(logs["loss"]), int(self.model.optimizer.iterations)]) + "\n")

    model = training.distributed(build, compile_model, fully_sharded=True)
    batches = data.BatchStream(make, STEPS, fixed_shapes=True)
    callbacks = [training.ShardedCheckpoint(folder / "checkpoint", batches, save_freq=1), Journal()]
    model.fit(batches.repeat(), steps_per_epoch=STEPS, epochs=EPOCHS, callbacks=callbacks, verbose=0)


def start(folder, name, *arguments):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen([sys.executable, __file__, folder, name, *arguments], env=environment)


def supervise(folder):
    """Starts all processes again from the last checkpoint whenever one has ended before its time, as a cluster does."""
    for name in ("alone", "two"):
        (folder / name).mkdir(parents=True)
    assert start(folder / "alone", "losses").wait() == 0
    starts = 0
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        starts += 1
        running = [start(folder / "two", f"losses_{index}", address, str(index)) for index in range(PROCESSES)]
        while all(process.poll() is None for process in running):
            time.sleep(0.05)
        status = next(process.poll() for process in running if process.poll() is not None)
        if status == 0 and all(process.wait() == 0 for process in running):
            break
        for process in running:
            process.kill()
            process.wait()
        assert starts < 3, status
    print(json.dumps({"starts": starts, "alone": read(folder / "alone/losses"), "two": read(folder / "two/losses_0")}))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
