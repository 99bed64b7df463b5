"""Prefill of a hybrid of recurrences and attention against the loop that it replaces: the model's step, token by token.

    python benchmarks/hybrid_prefill.py --json hybrid_prefill.json
    python benchmarks/hybrid_prefill.py --only kimi_delta_attention --lengths 4096 --size 8 512 8 2048

Three of four blocks have the recurrence, the fourth has attention. Both read the whole prompt into the cache in one compiled
graph, the loop with `tf.while_loop`, and give the output at the last token; they are timed in turns in one process.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from measure import Table, arguments, milliseconds, ratio, ratio_note, take_turns, timed, versions

from keras_transformer import models, recurrence
from keras_transformer.attention import MultiHeadAttention

VOCABULARY = 512
RECURRENCES = {
    "gated_delta_net": lambda size: recurrence.GatedDeltaNet(size.num_heads, size.hidden_dim // size.num_heads),
    "kimi_delta_attention": lambda size: recurrence.KimiDeltaAttention(
        size.num_heads, size.hidden_dim // size.num_heads
    ),
    "mamba2": lambda size: recurrence.Mamba2(size.num_heads, size.hidden_dim // size.num_heads),
    "lightning_attention": lambda size: recurrence.LightningAttention(
        size.num_heads, size.hidden_dim // size.num_heads
    ),
}


def hybrid(name, size):
    attention = MultiHeadAttention(size.num_heads, size.hidden_dim // size.num_heads, position="rotary")
    mixers = [*(RECURRENCES[name](size) for _ in range(3)), attention]
    return models.Decoder(
        size, VOCABULARY, position=None, norm="rms_norm", attention=mixers, feedforward="gated", dropout=0.0
    )


def prefills(steps, length):
    """Returns two functions of token ids and a cache to the output at the last token and the next cache."""

    def whole(ids, cache):
        output, cache = steps(ids, cache, 0)
        return output[:, -1:], cache

    def token_by_token(ids, cache):
        def step(index, output, cache):
            token = tf.reshape(ids[:, index], (1, 1))
            found = tf.nest.map_structure(
                lambda new, old: tf.ensure_shape(new, old.shape), steps(token, cache, index), (output, cache)
            )
            return index + 1, *found

        first = steps(ids[:, :1], cache, 0)
        return tf.while_loop(lambda index, *_: index < length, step, (tf.constant(1), *first))[1:]

    return {
        name: tf.function(run, autograph=False, jit_compile=False)
        for name, run in (("whole", whole), ("loop", token_by_token))
    }


def measure(table, name, length, options):
    size = models.Size(*options.size)
    steps = models.Stepwise(hybrid(name, size))
    ids = tf.constant(np.random.default_rng(0).integers(0, VOCABULARY, size=(1, length)), "int32")
    cache = steps.init_cache(1, length)
    outputs, rivals = {}, {}
    for each, run in prefills(steps, length).items():
        run = run.get_concrete_function(ids, cache)
        outputs[each] = run(ids, cache)[0].numpy()
        rivals[each] = timed(lambda run=run: run(ids, cache)[0].numpy(), warm_up=0)
    turns = take_turns(rivals, options.rounds)
    difference = np.abs(outputs["whole"] - outputs["loop"]).max() / np.abs(outputs["loop"]).max()
    found = ratio(turns["whole"], turns["loop"])
    table.add(
        recurrence=name,
        n=length,
        whole_ms=milliseconds(turns["whole"]),
        loop_ms=milliseconds(turns["loop"]),
        **found,
        times_faster=round(1 / found["ratio"], 1),
        difference=float(f"{difference:.1e}"),
    )


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=RECURRENCES, default=list(RECURRENCES), metavar="NAME")
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--size", nargs=4, type=int, default=[4, 256, 4, 1024], help="layers, width, heads, inner")
    parser.set_defaults(rounds=3)
    options = parser.parse_args()
    if options.tiny:
        options.lengths, options.size, options.rounds = [64], [4, 16, 2, 32], 1
    return options


def main():
    options = parse()
    found = versions("keras-transformer", "keras", "tensorflow")
    table = Table(f"Prefill of a hybrid of {options.size[0]} blocks of width {options.size[1]}, batch 1", found)
    for name in options.only:
        for length in options.lengths:
            measure(table, name, length, options)
    table.note(ratio_note(options.rounds))
    table.note("difference: of the outputs at the last token, relative to the largest value.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
