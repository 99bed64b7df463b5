"""Trains with rows on one device, and with rows that are split over virtual devices; prints losses and what is exchanged."""

import json
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import keras
import numpy as np

from keras_transformer import models, tasks, training

STEPS, ROWS, LENGTH, WORDS = 5, 2, 96, 24
SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=4, intermediate_dim=32)
SPLITS = {
    "sequence": {"sequence_parallel": 8},
    "sequence, model, fully sharded": {"sequence_parallel": 2, "model_parallel": 2, "fully_sharded": True},
}


def build():
    return tasks.LanguageModel(models.Decoder(SIZE, WORDS, attention="blockwise", position="rotary"))


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


def batches():
    drawn = np.random.default_rng(0)
    for _ in range(STEPS):
        token_ids = drawn.integers(1, WORDS, (ROWS, LENGTH + 1)).astype("int32")
        mask = np.arange(LENGTH) < np.array([[LENGTH], [41]])
        yield {"token_ids": token_ids[:, :-1], "padding_mask": mask}, np.where(mask, token_ids[:, 1:], -100)


def trained(name):
    keras.utils.set_random_seed(0)
    if name is None:
        model = build()
        compile_model(model)
    else:
        model = training.distributed(build, compile_model, **SPLITS[name])
    losses = [float(model.train_on_batch(*batch)) for batch in batches()]
    exchanged = training.communication(model, *next(batches()))
    keras.distribution.set_distribution(None)
    return {"name": name, "losses": losses, "exchanged": exchanged}


if __name__ == "__main__":
    for split in (None, *SPLITS):
        print(json.dumps(trained(split)), flush=True)
