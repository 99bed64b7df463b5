"""What the callbacks that watch a training cost: the share of CPU time that `fit` spends in them.

    python benchmarks/monitoring_cost.py --threads 1
    KERAS_BACKEND=jax python benchmarks/monitoring_cost.py

A decoder is trained for 201 steps of its language-model loss, with each callback at its default interval. The first step, in
which functions are compiled and `CheckData` calls the model, is apart.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics
import tempfile
import time

import keras
import numpy as np
from measure import Table, arguments, limit_threads, versions

from keras_transformer import models, tasks, training

VOCABULARY, LENGTH, BATCH = 1000, 64, 8
STEPS = 200
METHODS = ("_before_step", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end")


class Clock(keras.callbacks.Callback):
    """CPU time of the steps after the first, and of another callback's methods in them.

    Args:
        watched: the other callback, after which this one is called.
    """

    def __init__(self, watched):
        super().__init__()
        self.inside = self.first_step = self.start = 0.0
        for method in METHODS:
            if hasattr(watched, method):
                setattr(watched, method, self._timed(getattr(watched, method)))

    def _timed(self, method):
        def call(*arguments, **options):
            start = time.process_time()
            try:
                return method(*arguments, **options)
            finally:
                self.inside += time.process_time() - start

        return call

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.first_step, self.inside = self.inside, 0.0
            self.start = time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        self.total = time.process_time() - self.start


def language_model(size):
    """Returns a compiled language model."""
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(models.Decoder(size, VOCABULARY, max_sequence_length=LENGTH, dropout=0.1))
    model.compile(keras.optimizers.AdamW(1e-4), training.MaskedCrossentropy(), jit_compile=True)
    return model


def measured(model, make_callback, steps):
    """Returns the share of the time that `fit` spends in a callback, and its seconds in the first step."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, ((steps + 1) * BATCH, LENGTH))
    x = {"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}
    watched = make_callback()
    clock = Clock(watched)
    model.fit(x, ids, batch_size=BATCH, verbose=0, callbacks=[watched, clock])
    return clock.inside / clock.total, clock.first_step


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=3)
    parser.add_argument("--threads", type=int, help="TensorFlow threads")
    options = parser.parse_args()
    if options.threads:
        limit_threads(options.threads)
    size = models.Size(1, 16, 2, 32) if options.tiny else models.Size(4, 128, 4, 512)
    model, steps = language_model(size), 4 if options.tiny else STEPS
    packages = versions("keras-transformer", "keras", "tensorflow", "jax")
    table = Table(f"CPU time of callbacks in fit, {keras.backend.backend()}", packages)
    with tempfile.TemporaryDirectory() as directory:
        callbacks = {
            "CheckData": training.CheckData,
            "StopAtNaN": lambda: training.StopAtNaN(directory),
            "LossSpikes": training.LossSpikes,
            "GradientsByLayer": training.GradientsByLayer,
        }
        for name, make in callbacks.items():
            shares, firsts = zip(*(measured(model, make, steps) for _ in range(options.rounds)), strict=True)
            share, first = 100 * statistics.median(shares), statistics.median(firsts)
            table.add(callback=name, percent=round(share, 2), first_step_s=round(first, 2))
    table.note(f"{model.count_params():,} parameters, batch {BATCH}, {LENGTH} tokens")
    table.note(f"percent: of the CPU time of the {steps} steps after the first; medians of {options.rounds} trainings")
    table.finish(options.json)


if __name__ == "__main__":
    main()
