"""Training of stacks of a hundred blocks with each residual scheme: the loss after a few steps of a small task.

    python benchmarks/deep.py [--layers 100] [--steps 300] [--schemes post pre deepnorm rezero residual]

The task is to reverse a row of random tokens; all schemes have the same width, batches, optimizer and learning rate,
without warm-up. The loss at chance is log(vocabulary).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import math

import keras
import numpy as np
from measure import Table, versions

from keras_transformer import models

SCHEMES = ("post", "pre", "deepnorm", "rezero", "residual")
VOCABULARY, LENGTH, BATCH = 8, 6, 32


def rows(count, seed=0):
    """Returns `count` batches of token ids and their reverse."""
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (count * BATCH, LENGTH)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}, ids[:, ::-1]


def classifier(scheme, num_layers, width):
    backbone = models.Encoder(
        models.Size(num_layers, width, 2, 2 * width),
        VOCABULARY,
        max_sequence_length=LENGTH,
        residual=scheme,
        activation="relu",
    )
    return keras.Model(backbone.input, keras.layers.Dense(VOCABULARY, name="head")(backbone.output))


def first_block_gradient(model, x, y):
    """Returns the change of the first block's value kernel in one small step, relative to that of the last block."""
    kernels = [block.mixer.value_dense.kernel for block in (model.layers[i] for i in _blocks(model))]
    starts, saved = [np.asarray(kernel) for kernel in kernels], model.get_weights()
    model.compile(keras.optimizers.SGD(1e-3), _loss(), run_eagerly=True)  # One step only: no graph.
    model.train_on_batch({name: value[:BATCH] for name, value in x.items()}, y[:BATCH])
    first, last = (np.linalg.norm(np.asarray(kernel) - start) for kernel, start in zip(kernels, starts, strict=True))
    model.set_weights(saved)
    return first / last if last else math.nan


def _blocks(model):
    found = [index for index, layer in enumerate(model.layers) if layer.name.startswith("encoder_block_")]
    return found[0], found[-1]


def _loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def measure(scheme, options):
    """Returns a dict of the losses of the first and the last tenth of the steps, and `first_block_gradient`."""
    keras.utils.set_random_seed(0)
    model = classifier(scheme, options.layers, options.width)
    steps = options.steps
    x, y = rows(steps)
    ratio = first_block_gradient(model, x, y)
    model.compile(keras.optimizers.Adam(options.rate), _loss(), jit_compile=False)
    losses = []
    record = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[record])
    # Keras logs the mean since the start of the epoch.
    single = np.diff(np.array([0.0, *losses]) * np.arange(steps + 1))
    part = max(1, steps // 10)
    first, last = (round(float(losses.mean()), 3) for losses in (single[:part], single[-part:]))
    return {"first": first, "last": last, "gradient": f"{ratio:.2g}"}


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of Adam")
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    options = parser.parse_args(given)
    title = f"{options.layers} blocks of width {options.width}, {options.steps} steps of Adam at {options.rate}"
    table = Table(title, versions("keras_transformer", "keras", "tensorflow"))
    table.note(
        f"first, last: loss over the first and the last tenth of the steps; chance is {math.log(VOCABULARY):.3f}."
    )
    table.note("gradient: of the first block's value kernel, as a multiple of the last block's, before training.")
    for scheme in options.schemes:
        table.add(residual=scheme, **measure(scheme, options))
        keras.backend.clear_session()
    table.finish(options.json)


if __name__ == "__main__":
    main()
