"""Exports small models that train on the device, and trains them by `fit`: `training_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from worker_cases import run_cases

from keras_transformer import models, tasks
from keras_transformer.export import export_training
from keras_transformer.training import add_lora

SIZE = models.Size(num_layers=2, hidden_dim=32, num_heads=4, intermediate_dim=48)
STEPS = 100
EXHAUSTIVE = ("last_block",)


def adapters(out):
    """Adapters of an encoder with padding, by AdamW with clipped gradients."""
    random = np.random.default_rng(0)
    model = tasks.SequenceClassifier(models.Encoder(SIZE, 90, position="rotary"), 5)
    add_lora(model, rank=3)
    mask = np.arange(11) < random.integers(4, 12, (6, 1))
    x = {"token_ids": random.integers(1, 90, (6, 11)).astype("int32"), "padding_mask": mask}
    y = random.integers(0, 5, 6)
    optimizer = keras.optimizers.AdamW(2e-2, weight_decay=0.02, global_clipnorm=0.5)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return trained(out, model, x, y)


def head(out):
    """The head on the class token of a frozen ViT, by a momentum and a schedule of the learning rate."""
    random = np.random.default_rng(1)
    backbone = models.ViT(SIZE, patch_size=4, image_size=8, num_channels=3)
    model = tasks.ImageClassifier(backbone, 4, activation=None)
    for layer in model.layers:
        layer.trainable = layer.name == "logits"
    x, y = random.normal(size=(7, 8, 8, 3)).astype("float32"), np.eye(4)[random.integers(0, 4, 7)]
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 80, warmup_target=0.1, warmup_steps=10)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile(keras.optimizers.SGD(schedule, momentum=0.8, nesterov=True), loss)
    return trained(out, model, x, y)


def last_block(out):
    """All weights of the last block, with norms and GELU, toward numbers; biases and norms do not decay."""
    random = np.random.default_rng(2)
    backbone = models.Encoder(SIZE, 40, max_sequence_length=9)
    model = tasks.SequenceClassifier(backbone, 1, activation=None)
    for layer in model.layers:
        layer.trainable = "block_1" in layer.name
    x = {"token_ids": random.integers(1, 40, (5, 9)).astype("int32"), "padding_mask": np.ones((5, 9), bool)}
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=2.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(optimizer, "huber")
    return trained(out, model, x, random.normal(size=5).astype("float32"))


def trained(out, model, x, y):
    export_training(model, out / "bundle", (x, y), metadata={"classes": ["a", "b"]}, progress=False)
    before = model.predict(x, verbose=0)
    history = model.fit(x, y, batch_size=len(y), epochs=STEPS, shuffle=False, verbose=0).history
    arrays = x if isinstance(x, dict) else {"images": x}
    weights = {f"weight/{each.path}": np.asarray(each) for each in model.trainable_variables}
    figures = {"y": y, "losses": history["loss"], "before": before, "after": model.predict(x, verbose=0)}
    np.savez(out / "expected.npz", **figures, **weights, **{f"x/{name}": array for name, array in arrays.items()})
    return sorted(path.name for path in (out / "bundle").iterdir())


def main(out):
    cases = {"adapters": adapters, "head": head, "last_block": last_block}
    for name in cases:
        (out / name).mkdir()
    every = {name: lambda case=case, name=name: case(out / name) for name, case in cases.items()}
    run_cases(out, every, exhaustive=EXHAUSTIVE)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
