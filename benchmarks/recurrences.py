"""One recurrent layer, such as RetNet's or Mamba-2, against torch: forward, and a training step, on long sequences.

    python benchmarks/recurrences.py --json recurrences.json
    python benchmarks/recurrences.py --only retention --lengths 1024 8192 --threads 2

The peers of RWKV-4, Gated DeltaNet, Kimi Delta Attention, lightning attention and Mamba-2 are those of Hugging Face; the
others are the formulas of the papers in torch (`recurrence_peers.py`), RWKV-7 token by token as in the authors' package
`rwkv` on a CPU. Both have the same weights and inputs and are timed in turns in one process. A training step
includes the gradients of all weights and of the input.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from measure import Table, arguments, limit_threads, milliseconds, ratio, ratio_note, take_turns, timed, versions

from keras_transformer import recurrence

LAYERS = {
    "retention": lambda width: recurrence.MultiScaleRetention(width // 64 or 1, min(width, 64)),
    "time_mixing": lambda width: recurrence.TimeMixing(),
    "s4d": lambda width: recurrence.S4D(seed=0),
    "gated_delta_net": lambda width: recurrence.GatedDeltaNet(width // 64 or 1, min(width, 64)),
    "kimi_delta_attention": lambda width: recurrence.KimiDeltaAttention(width // 64 or 1, min(width, 64)),
    "rwkv7_time_mixing": lambda width: recurrence.RWKV7TimeMixing(width // 64 or 1),
    "lightning_attention": lambda width: recurrence.LightningAttention(width // 64 or 1, min(width, 64)),
    "mamba2": lambda width: recurrence.Mamba2(2 * width // min(width, 64), min(width, 64)),
}
MODES = {"forward": False, "train": True}


def our_step(layer, x, train, jit_compile):
    weights = [weight.value for weight in layer.trainable_weights]
    x = tf.constant(x)

    def forward():
        return layer(x)

    def forward_and_backward():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        return tape.gradient(loss, [x, *weights])

    run = tf.function(forward_and_backward if train else forward, autograph=False, jit_compile=jit_compile)
    run = run.get_concrete_function()

    def step():
        for tensor in tf.nest.flatten(run()):
            tensor.numpy()  # Waits for the result.

    return step


def measure(table, name, length, options):
    import torch
    from recurrence_peers import LONGEST, PEERS, largest_difference
    from torch_step import torch_step

    layer = LAYERS[name](options.width)
    x = np.random.default_rng(0).normal(size=(1, length, options.width)).astype("float32")
    layer.build(x.shape)
    expected = keras.ops.convert_to_numpy(layer(x))
    for peer, make in PEERS[name].items():
        if length > LONGEST.get(peer, length):
            continue
        module = torch.compile(make(layer)) if options.compile else make(layer)
        difference = largest_difference(module, x, expected)
        for mode in options.modes:
            train = MODES[mode]
            rivals = {
                "ours": timed(our_step(layer, x, train, options.xla), warm_up=1),
                "peer": timed(torch_step(module, torch.tensor(x), train), warm_up=0),
            }
            turns = take_turns(rivals, 1)  # Slow rivals have one turn only.
            rounds = int(options.seconds / sum(each[0].wall for each in turns.values()))
            turns = take_turns(rivals, min(rounds, options.rounds)) if rounds > 1 else turns
            table.add(
                layer=name,
                peer=peer,
                mode=mode,
                n=length,
                ours_ms=milliseconds(turns["ours"]),
                peer_ms=milliseconds(turns["peer"]),
                **ratio(turns["ours"], turns["peer"]),
                difference=float(f"{difference:.1e}"),
            )


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=LAYERS, default=list(LAYERS), metavar="NAME")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 2048, 4096, 8192])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="approximate time per row")
    parser.add_argument("--xla", action="store_true", help="compile ours with XLA")
    parser.add_argument("--compile", action="store_true", help="compile the peers with torch.compile")
    options = parser.parse_args()
    if options.tiny:
        options.lengths, options.width, options.rounds = [1024], 8, 2
    return options


def main():

    options = parse()
    limit_threads(options.threads)
    found = versions("keras-transformer", "keras", "tensorflow", "torch", "transformers")
    title = f"One recurrent layer of width {options.width}, batch 1, {options.threads} threads"
    title += (", XLA" if options.xla else "") + (", peers compiled" if options.compile else "")
    table = Table(title, found)
    for name in options.only:
        for length in options.lengths:
            measure(table, name, length, options)
    table.note(ratio_note(f"up to {options.rounds}"))
    table.note("difference: of both outputs, relative to the largest value.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
