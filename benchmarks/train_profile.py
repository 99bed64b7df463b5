"""Where the time of a training step goes: forward pass, backward pass, optimizer, random numbers, and the call of `fit`.

    python benchmarks/train_profile.py --plot profile.png
    python benchmarks/train_profile.py --networks encoder --models ours keras_layers --modes xla

Parts are differences of compiled functions, timed in turns: forward pass with loss, and gradients, both without dropout;
random numbers are what dropout adds to the gradients; then a step with its optimizer, and `train_on_batch`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import statistics

import keras
import tensorflow as tf
from measure import Table, arguments, limit_threads, take_turns, timed, versions
from networks import TINY, same_weights
from train_step import MODES, NETWORKS, classifier, compiled

PARTS = ("forward", "backward", "random", "optimizer", "call")


def functions(model, batch, jit_compile):
    """Returns a dict of name to a function without arguments that runs a part of a step."""
    inputs, labels = tf.nest.map_structure(tf.constant, batch)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    variables = model.trainable_variables
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(variables)

    def forward(inputs, labels):
        return loss(labels, model(inputs, training=True))

    def gradients(inputs, labels):
        with tf.GradientTape() as tape:
            value = forward(inputs, labels)
        return [tf.convert_to_tensor(each) for each in tape.gradient(value, [each.value for each in variables])]

    def step(inputs, labels):
        optimizer.apply(gradients(inputs, labels), variables)
        return labels

    return {
        function.__name__: _runs(tf.function(function, jit_compile=jit_compile), inputs, labels)
        for function in (forward, gradients, step)
    }


def _runs(function, inputs, labels):
    return lambda: tf.nest.map_structure(tf.identity, function(inputs, labels))


def profile(network, name, mode, options):
    """Returns a dict of part to seconds."""
    builders, measures, make_batch = NETWORKS[network]
    measures = measures._replace(dropout=options.dropout, **(TINY if options.tiny else {}))
    batch = make_batch(measures, options.batch_size)
    model = classifier(builders[name](measures))
    without = classifier(builders[name](measures._replace(dropout=0.0)))
    same_weights(model, without)
    plain = functions(without, batch, MODES[mode])
    runs = {"forward": plain["forward"], "plain": plain["gradients"]}
    runs |= {name: run for name, run in functions(model, batch, MODES[mode]).items() if name != "forward"}
    fitted = compiled(model, MODES[mode])
    runs["fit"] = lambda: fitted.train_on_batch(*batch)
    turns = take_turns({each: timed(run) for each, run in runs.items()}, options.rounds)
    times = {each: statistics.median(turn.wall for turn in found) for each, found in turns.items()}
    return {
        "forward": times["forward"],
        "backward": times["plain"] - times["forward"],
        "random": times["gradients"] - times["plain"],
        "optimizer": times["step"] - times["gradients"],
        "call": times["fit"] - times["step"],
    }


def plot(rows, path):
    """Draws a bar for each row, of its parts in milliseconds."""
    from matplotlib.figure import Figure

    axes = (figure := Figure((9, 1.2 + 0.5 * len(rows)), layout="constrained")).subplots()
    names = [f"{row['network']}, {row['model']}{', XLA' if row['mode'] == 'xla' else ''}" for row in rows]
    left = [0.0] * len(rows)
    for part in PARTS:
        # A part that is within the noise may be below zero.
        widths = [max(0.0, row[f"{part}_ms"]) for row in rows]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a training step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(PARTS), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.savefig(path, dpi=150)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--models", nargs="+", choices=("ours", "keras_layers", "keras_hub"), default=["ours"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="with and without XLA")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, help="TensorFlow threads")
    parser.add_argument("--plot", metavar="FILE", help="also draw a bar for each row")
    return parser.parse_args()


def main():
    options = parse()
    if options.threads:
        limit_threads(options.threads)
    packages = versions("keras-transformer", "keras", "tensorflow", "keras-hub")
    table = Table(f"Parts of a training step, batch of {options.batch_size}, dropout {options.dropout:g}", packages)
    for network in options.networks:
        for mode in options.modes:
            for name in options.models:
                keras.utils.clear_session()
                keras.utils.set_random_seed(0)
                found = profile(network, name, mode, options)
                parts = {f"{part}_ms": round(1e3 * found[part], 1) for part in PARTS}
                total = round(1e3 * sum(found.values()), 1)
                table.add(network=network, model=name, mode=mode, step_ms=total, **parts)
    table.note(f"medians of {options.rounds} rounds; parts are differences, so that noise can make small ones negative")
    table.finish(options.json)
    if options.plot:
        plot(table.rows, options.plot)


if __name__ == "__main__":
    main()
