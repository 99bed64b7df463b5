"""Whether the best learning rate of a narrow decoder is that of wider ones, with and without muP.

    python benchmarks/width_transfer.py --data-dir DIR --plot width_transfer.png     # DIR/input.txt

A decoder of two blocks is trained on the characters of Tiny Shakespeare at each width and learning rate: the same batches,
AdamW without weight decay at a constant rate. The figure is the mean loss of the last tenth of the steps. "standard" has one
learning rate for all weights; "muP" has `training.width_multipliers` and `head_scale`, with the first width as base.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import math
import pathlib
import sys

import keras
import numpy as np
from measure import Table, arguments, limit_threads, versions

from keras_transformer import models, tasks, text, training

sys.path.append(str(pathlib.Path(__file__).parents[1] / "examples"))
import character_lm as example

WIDTHS = (64, 128, 256, 512)
RATES = tuple(2.0**exponent for exponent in range(-13, -4))
HEAD_WIDTH, BLOCKS, CONTEXT, BATCH = 32, 2, 32, 8
PARAMETRIZATIONS = ("standard", "muP")


def build(width, base_width, vocabulary_size, is_mup):
    """Returns a language model of a width, compiled with an optimizer of its parametrization."""
    keras.utils.set_random_seed(0)
    model = language_model(width, vocabulary_size, base_width / width if is_mup else 1.0)
    multipliers = {}
    if is_mup:
        multipliers = training.width_multipliers(model, language_model(base_width, vocabulary_size, 1.0))
    optimizer = training.LayerwiseAdamW(1e-3, multipliers=multipliers, weight_decay=0.0)
    model.compile(optimizer, training.MaskedCrossentropy(), jit_compile=True)
    return model


def language_model(width, vocabulary_size, head_scale):
    size = models.Size(BLOCKS, width, width // HEAD_WIDTH, 4 * width)
    backbone = models.Decoder(size, vocabulary_size, max_sequence_length=CONTEXT)
    return tasks.LanguageModel(backbone, head_scale=head_scale)


def batches(token_ids, steps):
    """Returns the same random windows for every training: a list of inputs and labels."""
    random = np.random.default_rng(0)
    starts = random.integers(0, len(token_ids) - CONTEXT - 1, (steps, BATCH))
    windows = token_ids[starts[..., None] + np.arange(CONTEXT + 1)]
    mask = np.ones((BATCH, CONTEXT), bool)
    return [({"token_ids": each[:, :-1], "padding_mask": mask}, each[:, 1:]) for each in windows]


def final_losses(model, data, rates):
    """Trains from the same initial weights at each rate; returns the mean loss of the last tenth of the steps."""
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    initial = [keras.ops.convert_to_numpy(each) for each in variables]
    for rate in rates:
        for variable, value in zip(variables, initial, strict=True):
            variable.assign(value)
        model.optimizer.learning_rate = rate
        losses = []
        for inputs, labels in data:
            model.reset_metrics()
            losses.append(float(model.train_on_batch(inputs, labels)))
        yield float(np.mean(losses[-max(1, len(data) // 10) :]))


def plot(rows, path):
    """Draws the loss by learning rate: an axes for each parametrization, a curve for each width."""
    from matplotlib.figure import Figure

    from keras_transformer.plots.figure import curve_styles, plain_axes

    figure = Figure((8.4, 3.6), layout="constrained")
    widths = sorted({row["width"] for row in rows})
    styles = dict(zip(widths, curve_styles(len(widths)), strict=True))
    for axes, name in zip(figure.subplots(1, 2, sharey=True), PARAMETRIZATIONS, strict=True):
        for width in widths:
            found = [row for row in rows if (row["parametrization"], row["width"]) == (name, width)]
            rates, losses = [row["rate"] for row in found], [row["loss"] for row in found]
            axes.plot(rates, losses, label=f"width {width}", markersize=4, **styles[width])
            best = int(np.nanargmin(losses))
            axes.plot(rates[best], losses[best], "o", markersize=12, fillstyle="none", color=styles[width]["color"])
        axes.set(xscale="log", xlabel="learning rate", title=name)
        plain_axes(axes)
    lowest = min(row["loss"] for row in rows)
    figure.axes[0].set(ylabel="loss in nats per character", ylim=(lowest - 0.05, lowest + 0.9))
    figure.axes[1].legend(frameon=False)
    figure.savefig(path, dpi=150)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path, help="folder of input.txt; default: download it")
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--threads", type=int, default=1, help="TensorFlow threads")
    parser.add_argument("--plot", metavar="FILE", help="also draw the losses")
    return parser.parse_args()


def main():
    options = parse()
    limit_threads(options.threads)
    widths = [32, 64] if options.tiny else options.widths
    steps, rates = (10, RATES[::4]) if options.tiny else (options.steps, RATES)
    whole = example.load_text(options.data_dir, options.tiny)["training"]
    tokenizer = text.Characters.train([whole])
    data = batches(np.array(tokenizer.encode(whole), "int32"), steps)
    packages = versions("keras-transformer", "keras", "tensorflow")
    table = Table(f"Loss by width and learning rate after {steps} steps", packages)
    for name in PARAMETRIZATIONS:
        for width in widths:
            model = build(width, widths[0], tokenizer.vocabulary_size, name == "muP")
            losses = list(final_losses(model, data, rates))
            best = rates[int(np.nanargmin(losses))]
            for rate, loss in zip(rates, losses, strict=True):
                mark = "best" if rate == best else ""
                row = {"parametrization": name, "width": width, "rate": rate, "loss": round(loss, 3)}
                table.add(**row, mark=mark)
    best = {}
    for row in table.rows:
        if row["mark"]:
            best.setdefault(row["parametrization"], []).append(f"2^{round(math.log2(row['rate']))}")
    table.note("best rates: " + "; ".join(f"{name} {', '.join(found)}" for name, found in best.items()))
    table.finish(options.json)
    if options.plot:
        plot(table.rows, options.plot)


if __name__ == "__main__":
    main()
