"""What the callbacks that watch a training cost, relative to `fit` without them.

    python benchmarks/monitoring_cost.py --threads 1 --rounds 7
    KERAS_BACKEND=jax python benchmarks/monitoring_cost.py

Each turn is a `fit` of a decoder with its language-model loss, timed over the 200 steps after the first one, in which
functions are compiled and `CheckData` calls the model. The callbacks have their default intervals.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tempfile
import time

import keras
import numpy as np
from measure import Table, Turn, arguments, milliseconds, ratio, take_turns, versions
from train_step import limit_threads

from keras_transformer import models, tasks, training

VOCABULARY, LENGTH, BATCH = 1000, 64, 8
STEPS = 200


class Clock(keras.callbacks.Callback):
    """The time from the end of the first step to the end of the last."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.start = Turn(time.perf_counter(), time.process_time())

    def on_train_end(self, logs=None):
        float(self.model.optimizer.iterations.value)  # After the last step is computed.
        self.turn = Turn(time.perf_counter() - self.start.wall, time.process_time() - self.start.cpu)


def language_model(size):
    """Returns a compiled language model."""
    keras.utils.set_random_seed(0)
    backbone = models.Decoder(size, VOCABULARY, max_sequence_length=LENGTH, dropout=0.1)
    model = tasks.LanguageModel(backbone)
    model.compile(keras.optimizers.AdamW(1e-4), training.MaskedCrossentropy(), jit_compile=True)
    return model


def fit(model, make_callbacks, steps):
    """Returns a function that trains for some steps and returns the `Turn` of all but the first."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, ((steps + 1) * BATCH, LENGTH))
    x = {"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}

    def turn():
        clock = Clock()
        model.fit(x, ids, batch_size=BATCH, verbose=0, callbacks=[*make_callbacks(), clock])
        return clock.turn

    return turn


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="TensorFlow threads")
    options = parser.parse_args()
    if options.threads:
        limit_threads(options.threads)
    size = models.Size(1, 16, 2, 32) if options.tiny else models.Size(4, 128, 4, 512)
    steps = 4 if options.tiny else STEPS
    rivals = {
        "none": lambda: [],
        "CheckData": lambda: [training.CheckData()],
        "LossSpikes": lambda: [training.LossSpikes()],
        "GradientsByLayer": lambda: [training.GradientsByLayer()],
    }
    with tempfile.TemporaryDirectory() as directory:
        rivals["StopAtNaN"] = lambda: [training.StopAtNaN(directory)]
        model = language_model(size)
        turns = take_turns({name: fit(model, make, steps) for name, make in rivals.items()}, options.rounds)
    packages = versions("keras-transformer", "keras", "tensorflow", "jax")
    table = Table(f"fit of {steps} steps with callbacks, {keras.backend.backend()}", packages)
    for name, found in turns.items():
        table.add(callback=name, milliseconds=milliseconds(found), **ratio(found, turns["none"]))
    table.note(
        f"{model.count_params():,} parameters, batch {BATCH}, {LENGTH} tokens; ratio: with / without the callback"
    )
    table.finish(options.json)


if __name__ == "__main__":
    main()
