"""Generation time and cache size by context length, for states of fixed size and growing caches.

    python benchmarks/state.py --json state.json
    python benchmarks/state.py --only gpt retnet --contexts 1024 65536

Decoding: the time per token of the compiled step after a context, and the size of the cache. The cache is not filled with
the context, because its values do not change the cost of a step. Prefill: the time of a prompt up to the first new token.
Models are untrained, of the same size, with batch size 1.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import math
import time

import keras
import numpy as np
from long_worker import forget_peak, memory
from measure import Table, arguments, milliseconds, timed, versions

from keras_transformer import attention, models, tasks

VOCABULARY = 512
WINDOW = 512


def gpt(size):
    return models.Decoder(size, VOCABULARY, position="rotary")


def mistral(size):
    return models.Decoder(size, VOCABULARY, position=None, attention=_mixer(size, attention.LocalAttention(WINDOW)))


def linear(size):
    return models.Decoder(size, VOCABULARY, position=None, attention=_mixer(size, attention.LinearAttention()))


def infini(size):
    mechanism = attention.MECHANISMS["infini"](segment_length=WINDOW)
    return models.Decoder(size, VOCABULARY, position=None, attention=_mixer(size, mechanism))


def _mixer(size, mechanism):
    return attention.MultiHeadAttention(
        size.num_heads, size.hidden_dim // size.num_heads, mechanism=mechanism, position="rotary"
    )


MODELS = {
    "gpt": gpt,
    "yoco": lambda size: models.YOCO(size, VOCABULARY, window=WINDOW),
    "mistral": mistral,
    "transformer_xl": lambda size: models.TransformerXL(
        size, VOCABULARY, segment_length=WINDOW // 2, memory_length=WINDOW // 2
    ),
    "infini": infini,
    "linear": linear,
    "retnet": lambda size: models.RetNet(size, VOCABULARY),
    "rwkv": lambda size: models.RWKV(size, VOCABULARY),
    "s4": lambda size: models.S4Model(size, VOCABULARY),
}
PREFILLED = ("gpt", "yoco", "retnet")


def decoding(steps, context, rounds):
    """Returns the time per token after `context` tokens, and the size of the cache."""
    before = memory("VmRSS")
    forget_peak()
    cache, token, index = steps.init_cache(1, context + 1), np.ones((1, 1), "int32"), np.array([context], "int32")
    turns = [timed(lambda: steps.decode_step(token, cache, index), warm_up=0)() for _ in range(rounds + 2)][2:]
    size = sum(math.prod(tensor.shape) * np.dtype(tensor.dtype.as_numpy_dtype).itemsize for tensor in cache.values())
    return {
        "ms": milliseconds(turns),
        "tokens_per_s": round(1e3 / milliseconds(turns)),
        "cache_mb": round(size / 2**20, 3),
        "peak_mb": round(memory("VmHWM") - before),
    }


def prefill(steps, context, rounds):
    """Returns the prefill time of `context` tokens, without the allocation of the caches."""
    prompt, lengths, times = np.ones((1, context), "int32"), np.array([context], "int32"), []
    before = memory("VmRSS")
    forget_peak()
    for _ in range(rounds + 1):
        cache = steps.init_cache(1, context + 1)
        start = time.perf_counter()
        steps.prefill(prompt, lengths, cache)
        times.append(time.perf_counter() - start)
    return {"ms": round(1e3 * float(np.median(times[1:])), 1), "peak_mb": round(memory("VmHWM") - before)}


def measure(table, mode, name, contexts, options):
    run, found = {"decoding": decoding, "prefill": prefill}[mode], []
    model = tasks.LanguageModel(MODELS[name](models.Size(*options.size)))
    model.jit_compile = False
    steps = model.generator().steps
    for context in contexts:
        found.append(run(steps, context, options.rounds))
        row = {"mode": mode, "model": name, "context": context, **found[-1]}
        peer = next((r for r in table.rows if (r["mode"], r["model"], r["context"]) == (mode, "gpt", context)), None)
        table.add(**row, of_gpt=None if peer is None else round(found[-1]["ms"] / peer["ms"], 2))
    growth = found[-1]["ms"] / found[0]["ms"]
    table.note(f"{mode}: {name} takes {growth:.2f} times as long at {contexts[-1]} as at {contexts[0]} tokens.")


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--contexts", nargs="+", type=int, default=[1024, 4096, 16384, 65536])
    parser.add_argument("--prompts", nargs="*", type=int, default=[1024, 4096, 8192], help="lengths to prefill")
    parser.add_argument("--size", nargs=4, type=int, default=[8, 256, 4, 1024], help="layers, width, heads, inner")
    options = parser.parse_args()
    if options.tiny:
        options.contexts, options.prompts, options.size, options.rounds = [64, 128], [64], [2, 16, 2, 32], 1
    return options


def main():
    options = parse()
    table = Table("Decoding after a context, and prefill", versions("keras-transformer", "keras", "tensorflow"))
    for mode, names, contexts in (
        ("decoding", options.only, options.contexts),
        ("prefill", [name for name in PREFILLED if name in options.only], options.prompts),
    ):
        for name in names if contexts else []:
            measure(table, mode, name, contexts, options)
            keras.backend.clear_session()
    layers, width, heads, _ = options.size
    table.note(f"{layers} layers of width {width}, {heads} heads, float32, batch 1; windows and segments of {WINDOW}.")
    table.note(f"of_gpt: time / that of gpt for the same context. Medians of {options.rounds} steps.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
