"""Trains models on one device and on eight virtual ones, their weights split or not, and on fewer from step to step; prints
what all gave, as JSON.

python tests/training/distribution/sharded_worker.py                      # all of CASES
python tests/training/distribution/sharded_worker.py mixtral vit          # what the suite has time for
"""

import json
import os
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import jax
import keras
import numpy as np

from keras_transformer import data, models, tasks, training

STEPS, BATCH, LENGTH, WORDS = 3, 8, 6, 24
SIZE = models.Size(1, 16, 4, 32)
FEWER = [(8, 4), (2, 2), (1, 1)]  # For each step: devices, and how many of them share the weights.
drawn = np.random.default_rng(0)


def language_batch():
    token_ids = drawn.integers(1, WORDS, (BATCH, LENGTH + 1)).astype("int32")
    mask = np.arange(LENGTH) < drawn.integers(1, LENGTH + 1, (BATCH, 1))
    return {"token_ids": token_ids[:, :-1], "padding_mask": mask}, np.where(mask, token_ids[:, 1:], -100)


def image_batch():
    return drawn.uniform(size=(BATCH, 8, 8, 3)).astype("float32"), drawn.integers(0, 8, BATCH)


def translation_batch():
    (target, labels), (source, _) = language_batch(), language_batch()
    sides = {"source": source, "target": target}
    return {f"{side}_{name}": array for side, inputs in sides.items() for name, array in inputs.items()}, labels


def language_model(build):
    return lambda: tasks.LanguageModel(build())


def image_classifier():
    return tasks.ImageClassifier(models.ViT(SIZE, patch_size=4, image_size=8), num_classes=8, activation=None)


def compile_model(model):
    model.compile(keras.optimizers.Adam(0.01), training.MaskedCrossentropy())


# Name -> how it is built, what it learns from, how many devices share its weights.
CASES = {
    "decoder": (language_model(lambda: models.Decoder(SIZE, WORDS)), language_batch, 1),
    "llama": (language_model(lambda: models.Llama(SIZE, WORDS, num_key_value_heads=2)), language_batch, 4),
    "mixtral": (language_model(lambda: models.Mixtral(SIZE, WORDS, num_key_value_heads=2)), language_batch, 2),
    "transformer": (language_model(lambda: models.Transformer(SIZE, WORDS)), translation_batch, 4),
    "vit": (image_classifier, image_batch, 4),
}


def trained(build, batches, model_parallel=None):
    """The losses of some steps, and what the first device holds of the trainable weights and their moments."""
    keras.utils.set_random_seed(0)
    if model_parallel is None:
        model = build()
        compile_model(model)
    else:
        model = training.distributed(build, compile_model, model_parallel=model_parallel)
    losses = []
    for inputs, labels in batches:
        history = model.fit(inputs, labels, batch_size=BATCH, shuffle=False, verbose=0)
        losses.append(history.history["loss"][0])
    keras.distribution.set_distribution(None)
    held = total = 0
    for variable in (*model.trainable_variables, *model.optimizer.variables):
        value = variable.value
        total += value.nbytes
        held += sum(shard.data.nbytes for shard in value.addressable_shards if shard.device == jax.devices()[0])
    return losses, held / total


def fewer_and_fewer(build, batches, folder):
    """The losses of some steps, each made on another number of devices from the checkpoint of the step before."""
    # More is fetched than trained on.
    stream = data.BatchStream(lambda epoch, step: batches[epoch % STEPS], 1, fixed_shapes=True)
    for epoch, (devices, model_parallel) in enumerate(FEWER):
        keras.utils.set_random_seed(epoch)
        names = [f"cpu:{index}" for index in range(devices)]
        model = training.distributed(build, compile_model, model_parallel=model_parallel, devices=names)
        checkpoint = training.TrainingCheckpoint(folder, stream)
        history = model.fit(stream.repeat(), steps_per_epoch=1, epochs=epoch + 1, callbacks=[checkpoint], verbose=0)
        keras.distribution.set_distribution(None)
    return history.history["loss"]


def main():
    for name in sys.argv[1:] or CASES:
        build, make, model_parallel = CASES[name]
        batches = [make() for _ in range(STEPS)]
        alone, _ = trained(build, batches)
        many, share = trained(build, batches, model_parallel)
        with tempfile.TemporaryDirectory() as folder:
            fewer = fewer_and_fewer(build, batches, folder)
        print(json.dumps({"name": name, "alone": alone, "many": many, "fewer": fewer, "share": share}), flush=True)


if __name__ == "__main__":
    main()
