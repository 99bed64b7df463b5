"""64 requests of mixed lengths: continuous batching with a paged cache, static batches, and one request at a time.

    python benchmarks/engine.py                    # 6 layers x 384, 50,257 words, prompts 16 to 192, 32 to 128 new tokens
    python benchmarks/engine.py --quantize int8    # and with keys and values in 8 bits

All requests arrive at the start and are decoded greedily with the same weights. Static batches and single requests run
`model.generate`, whose loop is one compiled graph; a static batch runs until its longest text is complete. Static batches
and the engine have caches of the same size; blocks fit more requests. Compilation is excluded from the time.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics
import threading
import time
from typing import NamedTuple

import keras
import numpy as np
from gpt2 import GPT2, ours
from measure import Table, arguments, limit_tensorflow_threads, versions

from keras_transformer.generation import Engine

# Lengths of prompts and of continuations.
LENGTHS = ((16, 48, 96, 192), (32, 64, 128))
TINY = ((5, 12), (3, 9))
BLOCK_SIZE = 16
_CACHE_BLOCK = 32  # `tasks.KerasSteps` rounds the slots of a cache up to a multiple of this.


class Ask(NamedTuple):
    """A request: token ids and the number of new tokens."""

    prompt: list
    new: int


class Course(NamedTuple):
    """Result of all requests: texts, total seconds, seconds to each first token, and share of wasted cache slots."""

    texts: list
    seconds: float
    first: list
    waste: float


def make_requests(count, vocabulary_size, lengths=LENGTHS, seed=0):
    """Returns requests with short and long prompts and continuations, in random order."""
    rng = np.random.default_rng(seed)
    lengths = zip(*(rng.choice(each, count) for each in lengths), strict=True)
    return [Ask(rng.integers(0, vocabulary_size, length).tolist(), int(new)) for length, new in lengths]


def one_at_a_time(model, requests):
    start, texts, first = time.perf_counter(), [], []
    for prompt, new in requests:
        texts.append(model.generate(prompt, max_new_tokens=new))
        first.append(time.perf_counter() - start)
    return Course(texts, first[-1], first, _waste([[each] for each in requests]))


def static_batches(model, requests, batch_size):
    start, texts, first = time.perf_counter(), [], []
    groups = [requests[begin : begin + batch_size] for begin in range(0, len(requests), batch_size)]
    for group in groups:
        longest = max(new for _, new in group)
        found = model.generate([prompt for prompt, _ in group], max_new_tokens=longest)
        texts += [text[:new] for text, (_, new) in zip(found, group, strict=True)]
        first += [time.perf_counter() - start] * len(group)
    return Course(texts, first[-1], first, _waste(groups))


def continuous(engine, requests):
    start = time.perf_counter()
    asked = [engine.submit(prompt, max_new_tokens=new, wait=None) for prompt, new in requests]
    texts, first = [None] * len(requests), [None] * len(requests)
    threads = [
        threading.Thread(target=_follow, args=(number, request, start, texts, first))
        for number, request in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    return Course(texts, seconds, first, engine.stats()["cache_waste"])


def _follow(number, request, start, texts, first):
    tokens = request.stream()
    text = [next(tokens)]
    first[number] = time.perf_counter() - start
    texts[number] = text + list(tokens)


def _waste(groups):
    """Returns the share of dense cache slots without a token of an unfinished text, over all steps."""
    held = used = 0
    for group in groups:
        longest = max(new for _, new in group)
        slots = max(len(prompt) for prompt, _ in group) + longest
        slots = -(-slots // _CACHE_BLOCK) * _CACHE_BLOCK
        for step in range(longest):
            held += slots * len(group)
            used += sum(len(prompt) + step for prompt, new in group if step < new)
    return 1 - used / held


def sizes_of_engine(options, longest):
    """Returns the sizes of an engine whose cache is as large as that of a static batch of the longest rows."""
    blocks = options.batch * longest // BLOCK_SIZE
    return {"max_batch_size": options.rows, "num_blocks": blocks, "block_size": BLOCK_SIZE}


def tiny(measures):
    return measures._replace(num_layers=1, hidden_dim=12, vocabulary_size=50)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=1)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16, help="rows of a static batch")
    parser.add_argument("--rows", type=int, default=32, help="maximum number of rows of the engine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quantize", choices=["int8"], help="also measure an engine with quantized keys and values")
    return parser.parse_args()


def main():
    options = parse()
    limit_tensorflow_threads(options.threads)
    lengths = TINY if options.tiny else LENGTHS
    measures = GPT2._replace(max_sequence_length=sum(map(max, lengths)))
    if options.tiny:
        measures = tiny(measures)
    keras.utils.set_random_seed(0)
    model = ours(measures)
    requests = make_requests(options.requests, measures.vocabulary_size, lengths)
    sizes = sizes_of_engine(options, measures.max_sequence_length) | {"max_waiting": len(requests)}
    engines = {
        f"continuous, paged{', ' + mode if mode else ''}": Engine(model, quantize=mode, **sizes).warm_up()
        for mode in dict.fromkeys((None, options.quantize))
    }
    rivals = {
        "one at a time": lambda: one_at_a_time(model, requests),
        "static batches": lambda: static_batches(model, requests, options.batch),
        **{name: lambda engine=engine: continuous(engine, requests) for name, engine in engines.items()},
    }
    _compile(model, requests, options.batch)
    slots = sizes["num_blocks"] * BLOCK_SIZE
    title = f"{options.requests} requests in a cache of {slots} tokens, {options.threads} threads"
    table = Table(title, versions("keras-transformer", "keras", "tensorflow"))
    courses = {name: [] for name in rivals}
    for _ in range(options.rounds):
        for name, run in rivals.items():
            courses[name].append(run())
    for engine in engines.values():
        engine.close()
    report(table, courses, sum(new for _, new in requests))
    table.finish(options.json)


def _compile(model, requests, batch_size):
    """Compiles `generate` for every timed shape, without generating whole texts."""
    for length, new in sorted({(len(prompt), new) for prompt, new in requests}):
        model.generate([0] * length, max_new_tokens=new, stop=None)
    static_batches(model, requests, batch_size)


def report(table, courses, tokens):
    """Adds one row per rival; ratios are within a round."""
    base = courses["one at a time"]
    expected = base[0].texts
    for name, rounds in courses.items():
        ratios = [alone.seconds / course.seconds for alone, course in zip(base, rounds, strict=True)]
        same = sum(text == other for text, other in zip(rounds[0].texts, expected, strict=True))
        table.add(
            rival=name,
            tokens_per_s=round(statistics.median(tokens / course.seconds for course in rounds), 1),
            times_one_at_a_time=round(statistics.median(ratios), 2),
            first_token_median_s=round(statistics.median(rounds[0].first), 2),
            first_token_worst_s=round(max(rounds[0].first), 2),
            cache_waste=f"{rounds[0].waste:.1%}",
            same_texts=f"{same}/{len(expected)}",
        )
    table.note("first_token: until the first token of a request is available; generate returns all tokens at once.")
    table.note("cache_waste: share of allocated slots without a token of an unfinished text, over all steps.")
    table.note("same_texts: equal to those of one at a time.")


if __name__ == "__main__":
    main()
