"""Trains a model on one device and on eight virtual ones, with its weights split in several ways; prints what each gave.

python tests/training/distribution/fully_sharded_worker.py                              # all of SPLITS
python tests/training/distribution/fully_sharded_worker.py "fully sharded" model        # what the suite has time for
"""

import json
import os
import sys
from collections import Counter

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import keras
import numpy as np

from keras_transformer import models, tasks, training

STEPS, BATCH, LENGTH, WORDS = 10, 8, 6, 24
SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=4, intermediate_dim=32)
SPLITS = {
    "data": {},
    "fully sharded": {"fully_sharded": True},
    "model": {"model_parallel": 4},
    "model, fully sharded": {"model_parallel": 4, "fully_sharded": True},
    "recomputed, fully sharded": {"fully_sharded": True},
}


def build():
    return tasks.LanguageModel(models.Decoder(SIZE, WORDS, max_sequence_length=LENGTH + 2, feedforward="gated"))


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


def recomputed(model):
    training.recompute_blocks(model)
    compile_model(model)


def batches():
    drawn = np.random.default_rng(0)
    for _ in range(STEPS):
        token_ids = drawn.integers(1, WORDS, (BATCH, LENGTH + 1)).astype("int32")
        mask = np.arange(LENGTH) < drawn.integers(1, LENGTH + 1, (BATCH, 1))
        yield {"token_ids": token_ids[:, :-1], "padding_mask": mask}, np.where(mask, token_ids[:, 1:], -100)


def trained(name=None):
    keras.utils.set_random_seed(0)
    if name is None:
        model = build()
        compile_model(model)
    else:
        compiling = recomputed if name.startswith("recomputed") else compile_model
        model = training.distributed(build, compiling, **SPLITS[name])
    losses = [model.train_on_batch(*batch) for batch in batches()]
    result = {"name": name, "losses": list(map(float, losses))}
    if name is not None:
        result |= described(model)
        keras.distribution.set_distribution(None)
    return result


def described(model):
    """Bytes on each device, weights that it has whole, and the collective operations of a step."""
    devices, total, whole = Counter(), 0, []
    for variable in (*model.trainable_variables, *model.optimizer.variables):
        total += variable.value.nbytes
        for shard in variable.value.addressable_shards:
            devices[shard.device.id] += shard.data.nbytes
        if variable.value.is_fully_replicated:
            whole.append(variable.path)
    found = training.communication(model, *next(batches()))
    weights = {variable.path: variable.value.nbytes for variable in model.trainable_variables}
    return {"bytes": list(devices.values()), "total": total, "whole": whole, "weights": weights, "collectives": found}


if __name__ == "__main__":
    for split in (None, *(sys.argv[1:] or SPLITS)):
        print(json.dumps(trained(split)), flush=True)
