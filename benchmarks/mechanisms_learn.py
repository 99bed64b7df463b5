"""Accuracy of a small model with each mechanism, mixer or recurrence on synthetic long-range tasks, trained by `model.fit`.

    python benchmarks/mechanisms_learn.py --json learned.json
    python benchmarks/mechanisms_learn.py --tasks recall --only local softmax

Two tasks, generated from a seed, so that no row is repeated:

recall: 2,048 tokens. The first half contains 8 keys, once each with a value, among noise; each token of the last quarter is
a question for the value of a key, 512 to 2,047 tokens away. Guessing has an accuracy of 1/8, and so have mechanisms that
attend to neighbors only. Recurrences need more steps than attention, which shorter rows allow: `--length 256 --steps 1600`.

listops: the value of a nested list of MAX, MIN, MED and SM (the sum modulo 10) over digits, as in the Long Range
Arena (Nangia and Bowman, arXiv 1804.06028; Tay et al., arXiv 2011.04006), but short enough for two cores.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import time

import keras
from learning_tasks import TASKS
from long_mechanisms import NAMES, RECURRENT, is_causal, mixer
from measure import Table, arguments, versions

from keras_transformer import blocks, feedforward

CHOICES = [*NAMES, *RECURRENT]


def network(name, task, options):
    """Returns a model of an embedding, blocks with the mechanism, and a classifier of every token or of the row."""
    width = options.hidden_dim or task.hidden_dim
    tokens = keras.Input((task.length,), dtype="int32")
    x = keras.layers.Embedding(task.vocabulary_size, width, name="tokens")(tokens)
    if task.uses_positions:
        positions = keras.ops.arange(task.length, dtype="int32")
        x = x + keras.layers.Embedding(task.length, width, name="positions")(positions)
    for _ in range(task.num_layers):
        layer = mixer(name, task.length, options.num_heads, width // options.num_heads, task.window)
        block = blocks.DecoderBlock if is_causal(layer) else blocks.EncoderBlock
        x = block(layer, feedforward.DenseFeedForward(2 * width))(x)
    x = keras.layers.LayerNormalization()(x)
    if not task.labels_tokens:
        # The last token attends to all, with and without causality.
        x = x[:, -1]
    return keras.Model(tokens, keras.layers.Dense(task.num_classes)(x))


def train(name, task, options):
    """Trains for the given seconds or steps, whichever is shorter; returns a row of the table."""
    keras.utils.set_random_seed(options.seed)
    model = network(name, task, options)
    rate = options.learning_rate or task.learning_rate
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, task.steps, warmup_target=rate, warmup_steps=min(20, task.steps // 4), alpha=0.05
    )
    model.compile(
        keras.optimizers.Adam(schedule, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
        jit_compile=options.xla,
    )
    limit = TimeLimit(options.seconds)
    history = model.fit(task.batches(options.seed), steps_per_epoch=task.steps, epochs=1, verbose=0, callbacks=[limit])
    loss, accuracy = model.evaluate(task.batches(options.seed + 1), steps=task.test_steps, verbose=0)
    return {
        "task": task.name,
        "mechanism": name,
        "accuracy": round(accuracy, 3),
        "guessing": round(task.guessing, 3),
        "loss": round(loss, 3),
        "steps": limit.steps,
        "seconds": round(limit.seconds, 1),
        "parameters": model.count_params(),
        "train_loss": round(history.history["loss"][-1], 3),
    }


class TimeLimit(keras.callbacks.Callback):
    """Stops training after the given seconds, without those of the first step, which traces graphs."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.steps, self.seconds, self._start = limit, 0, 0.0, None

    def on_train_batch_end(self, batch, logs=None):
        self._start = time.perf_counter() if self._start is None else self._start
        self.steps, self.seconds = batch + 1, time.perf_counter() - self._start
        if self.seconds > self.limit:
            self.model.stop_training = True


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=CHOICES, metavar="NAME", help="mechanisms")
    parser.add_argument("--seconds", type=float, default=900, help="maximum training time per mechanism and task")
    parser.add_argument("--hidden-dim", type=int, help="width; default: that of the task")
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, help="peak learning rate; default: that of the task")
    parser.add_argument("--steps", type=int, help="training steps; default: those of the task")
    parser.add_argument("--length", type=int, help="tokens of a row of recall; default: 2048")
    parser.add_argument("--batch-size", type=int, help="rows; default: those of the task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--xla", action="store_true", help="compile with XLA, which takes a minute and halves the steps"
    )
    return parser.parse_args()


def main():
    options = parse()
    packages = versions("keras-transformer", "keras", keras.backend.backend())
    table = Table("Accuracy of small models after training", packages)
    for task in (TASKS[name](options) for name in options.tasks):
        for name in options.only:
            try:
                table.add(**train(name, task, options))
            except Exception as error:  # An error of one mechanism must not stop the others.
                table.add(task=task.name, mechanism=name, error=f"{type(error).__name__}: {str(error)[:120]}")
            keras.backend.clear_session()
        near = f"Local patterns span {task.window} tokens."
        table.note(f"{task.name}: {task.description} {near}")
    table.finish(options.json)


if __name__ == "__main__":
    main()
