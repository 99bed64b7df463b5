"""Trains a mixture of experts on one device, and on eight virtual ones that share its experts; prints what each gave.

python tests/training/distribution/experts_worker.py
"""

import json
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import keras
import numpy as np

from keras_transformer import feedforward, models, tasks, training

STEPS, BATCH, LENGTH, WIDTH, WORDS = 3, 8, 6, 16, 24


def build():
    experts = feedforward.MixtureOfExperts(32, router=8, use_bias=True)
    return tasks.LanguageModel(models.Decoder(models.Size(1, WIDTH, 4, 32), WORDS, feedforward=experts))


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


def batches():
    drawn = np.random.default_rng(0)
    for _ in range(STEPS):
        token_ids = drawn.integers(1, WORDS, (BATCH, LENGTH + 1)).astype("int32")
        mask = np.arange(LENGTH) < drawn.integers(1, LENGTH + 1, (BATCH, 1))
        yield {"token_ids": token_ids[:, :-1], "padding_mask": mask}, np.where(mask, token_ids[:, 1:], -100)


def trained(**split):
    keras.utils.set_random_seed(0)
    model = training.distributed(build, compile_model, **split) if split else build()
    if not split:
        compile_model(model)
    losses = [float(model.train_on_batch(*batch, return_dict=True)["loss"]) for batch in batches()]
    kernels = [each for each in model.trainable_variables if each.path.endswith(("_kernel", "_bias"))]
    (loads,) = (each for each in model.non_trainable_variables if each.path.endswith("loads"))
    found = {"losses": losses, "loads": np.array(loads.value).tolist()}
    if split:
        found["kernels"] = sum(each.value.nbytes for each in kernels)
        found["held"] = sum(each.value.addressable_shards[0].data.nbytes for each in kernels)
        found["collectives"] = training.communication(model, *next(batches()))
    return found


if __name__ == "__main__":
    print(json.dumps({"name": "alone", **trained()}), flush=True)
    print(json.dumps({"name": "split", **trained(model_parallel=4)}), flush=True)
