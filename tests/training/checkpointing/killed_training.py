"""Trains a small model to the end, once undisturbed and once killed again and again; prints what both runs gave, as JSON.

Children are forked from a process that has imported Keras and done nothing with it: importing is most of the time.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

from keras_transformer import data, training

EPOCHS, SAVE_FREQ = 3, 4


class Journal(keras.callbacks.Callback):
    """Appends epoch, batch and the running loss to a file after every batch that was trained on."""

    def __init__(self, path):
        super().__init__()
        self.path, self.epoch, self.updates = path, 0, None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.updates = self.updates or int(self.model.optimizer.variables[0])

    def on_train_batch_end(self, batch, logs=None):
        updates = int(self.model.optimizer.variables[0])
        if updates == self.updates:  # A batch that the checkpoint passes over.
            return
        self.updates = updates
        with open(self.path, "a") as file:
            file.write(json.dumps([self.epoch, batch, float(logs["loss"]).hex(), os.getpid()]) + "\n")


def token_batches():
    drawn = np.random.default_rng(0)
    rows = [drawn.integers(3, 20, length).tolist() for length in drawn.integers(2, 17, 90)]
    return data.bucket_batches(*data.next_token(rows), tokens_per_batch=64, seed=3)


def train(directory):
    # As in a new process: other seeds for dropout and weights, unless the checkpoint brings them back.
    keras.utils.set_random_seed(0 if not (directory / "checkpoint.npz").exists() else os.getpid())
    batches = token_batches()
    tokens = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    x = keras.layers.Dropout(0.3)(keras.layers.Embedding(20, 8)(tokens))
    model = keras.Model({"token_ids": tokens, "padding_mask": mask}, keras.layers.Dense(20)(x))
    schedule = training.InverseSquareRoot(10, peak_learning_rate=0.05)
    optimizer = keras.optimizers.Adam(schedule, use_ema=True, gradient_accumulation_steps=2)
    model.compile(optimizer, training.MaskedCrossentropy(0.1), metrics=[training.Perplexity()])
    history = model.fit(
        batches.repeat(),
        steps_per_epoch=len(batches),
        epochs=EPOCHS,
        validation_data=batches.epoch(),
        callbacks=[
            training.TrainingCheckpoint(directory, batches, save_freq=SAVE_FREQ),
            training.AveragedWeights(),
            Journal(directory / "journal"),
        ],
        verbose=0,
    )
    weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()
    result = {"history": history.history, "epochs": history.epoch, "weights": weights, "steps": len(batches)}
    (directory / "result").write_text(json.dumps(result))


def start(directory):
    directory.mkdir(exist_ok=True)
    child = os.fork()
    if not child:
        try:
            train(directory)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def journal(directory):
    path = directory / "journal"
    # A line may be cut off where the process was killed.
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def kill_after(child, directory, lines, delay):
    """Whether the child was killed before it came to its end."""
    while len(journal(directory)) < lines:
        time.sleep(0.002)
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(root, kills):
    root = Path(root)
    if os.waitpid(start(root / "whole"), 0)[1]:
        sys.exit("the training failed")
    drawn, killed = random.Random(int(kills)), 0
    broken = root / "broken"
    for _ in range(int(kills)):
        child = start(broken)
        killed += kill_after(child, broken, len(journal(broken)) + drawn.randrange(1, 10), drawn.random() * 0.01)
    os.waitpid(start(broken), 0)
    results = {name: json.loads((root / name / "result").read_text()) for name in ("whole", "broken")}
    journals = {name: journal(root / name) for name in ("whole", "broken")}
    print(json.dumps({"killed": killed, "results": results, "journals": journals, "save_freq": SAVE_FREQ}))


if __name__ == "__main__":
    main(*sys.argv[1:])
