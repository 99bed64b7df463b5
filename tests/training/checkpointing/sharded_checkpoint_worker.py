"""Trains on one device, and from checkpoint to checkpoint on 8, 4 and 1 virtual devices; prints the losses, as JSON.

python tests/training/checkpointing/sharded_checkpoint_worker.py DIRECTORY
"""

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import keras
import numpy as np

from keras_transformer import data, models, tasks, training

SIZE = {"num_layers": 1, "hidden_dim": 16, "num_heads": 4, "intermediate_dim": 32}
STEPS, ROWS, LENGTH, WORDS = 2, 8, 6, 24
# For each part of the training: devices, those that share layers, epochs until its end, and the batch before which it ends.
PARTS = [(8, 4, 1, None), (8, 1, 2, 1), (4, 2, 3, None), (1, 1, 4, None)]


class Interrupted(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    """Ends the last epoch before a batch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.moment, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.moment:
            raise Interrupted


def build():
    return tasks.LanguageModel(models.Decoder(models.Size(**SIZE), WORDS))


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


def stream():
    def make(epoch, step):
        token_ids = np.random.default_rng([epoch, step]).integers(1, WORDS, (ROWS, LENGTH + 1)).astype("int32")
        return {"token_ids": token_ids[:, :-1], "padding_mask": np.ones((ROWS, LENGTH), bool)}, token_ids[:, 1:]

    return data.BatchStream(make, STEPS, fixed_shapes=True)


def fit(model, batches, epochs, callbacks):
    options = {"steps_per_epoch": STEPS, "epochs": epochs, "callbacks": callbacks, "verbose": 0}
    return model.fit(batches.repeat(), **options).history["loss"]


def alone():
    keras.utils.set_random_seed(0)
    model = build()
    compile_model(model)
    return fit(model, stream(), PARTS[-1][2], [])


def from_part_to_part(folder):
    losses = []
    for seed, (devices, model_parallel, epochs, end) in enumerate(PARTS):
        keras.utils.set_random_seed(seed)
        names = [f"cpu:{index}" for index in range(devices)]
        model = training.distributed(
            build, compile_model, model_parallel=model_parallel, fully_sharded=True, devices=names
        )
        batches = stream()
        checkpoint = training.ShardedCheckpoint(folder, batches, save_freq=1)
        with contextlib.suppress(Interrupted):
            losses = fit(model, batches, epochs, [checkpoint, Interrupt(epochs - 1, end)])
        keras.distribution.set_distribution(None)
    return losses


def resumed(folder, epochs=9, **size):
    """The losses of a training that resumes, or its error; and the warnings."""
    batches = stream()
    model = tasks.LanguageModel(models.Decoder(models.Size(**{**SIZE, **size}), WORDS))
    compile_model(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fit(model, batches, epochs, [training.ShardedCheckpoint(folder, batches)])
        except training.TrainingCheckpointError as error:
            result = [type(error).__name__, str(error)]
    return result, [str(each.message) for each in caught if "Resuming" in str(each.message)]


def damage(checkpoint):
    """Truncates the data of a checkpoint."""
    for path in checkpoint.glob("**/d/*"):
        path.write_bytes(path.read_bytes()[:50])


def numbers(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.is_dir())


if __name__ == "__main__":
    run = Path(sys.argv[1])
    result = {"alone": alone(), "many": from_part_to_part(run)}
    result["kept"] = numbers(run)
    result["other model"] = resumed(run, hidden_dim=32)
    damage(run / str(result["kept"][-1]))
    result["damaged"] = resumed(run, epochs=PARTS[-1][2])
    result["kept after damage"] = numbers(run)
    for number in numbers(run):
        damage(run / str(number))
    result["all damaged"] = resumed(run)
    print(json.dumps(result))
