"""Requests that arrive at random: what an engine answers, how soon, and what is left of its offline throughput.

    python benchmarks/engine_load.py                       # 1,000 requests at 0.5, 1.0 and 1.5 of the capacity
    python benchmarks/engine_load.py --quantize int8       # with keys and values in 8 bits

The model, prompts and lengths are those of `benchmarks/engine.py`. The capacity is the rate at which the engine answers all
requests when they arrive at once. Then they arrive as a Poisson process at a share of it. Of 20 requests one stops reading
after some tokens, one is cancelled after a while, and one has a sampler that fails; the others must be answered once each,
with the tokens of the request alone. A request that finds the queue full is refused, and counted as such.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import threading
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from engine import LENGTHS, TINY, make_requests, sizes_of_engine, tiny
from gpt2 import GPT2, ours
from measure import Table, arguments, versions

from keras_transformer.generation import Engine, EngineError, QueueFullError, Random, RequestCancelledError

# What happens to a request. Of 20, one each is left, canceled and fails.
ANSWERED, LEFT, CANCELED, FAILED, REFUSED = "answered", "left", "canceled", "failed", "refused"
FAULTS, GROUP = (LEFT, CANCELED, FAILED), 20
# Requests whose tokens are compared with those of `generate`; those of the others with the offline run.
ALONE = 32
USERS = 8


class Poison(Random):
    """A sampler that fails at its third token."""

    def __call__(self, ops, logits, uniforms=None):
        calls = self.__dict__.setdefault("calls", [])
        calls.append(1)
        if len(calls) == 3:
            raise ArithmeticError("poison")
        return super().__call__(ops, logits, uniforms)


class Outcome(NamedTuple):
    """What became of a request: its kind, its tokens, and the seconds from its arrival to each token."""

    kind: str
    tokens: list
    seconds: list


class Load:
    """Requests that are sent to an engine, each followed in a thread of its own.

    Args:
        engine: `Engine`.
        requests: list of `Ask`.
        fates: list of str, what happens to each.
    """

    def __init__(self, engine, requests, fates):
        self.engine, self.requests, self.fates = engine, requests, fates
        self.outcomes = [None] * len(requests)
        self._threads = []

    def run(self, arrivals, wait=0.0):
        """Sends the requests at the given seconds; returns the seconds until all have ended."""
        start = time.perf_counter()
        for number, arrival in enumerate(arrivals):
            time.sleep(max(0.0, start + arrival - time.perf_counter()))
            self._send(number, wait)
        for thread in self._threads:
            thread.join()
        return time.perf_counter() - start

    def _send(self, number, wait):
        prompt, new = self.requests[number]
        options = {"sampler": Poison()} if self.fates[number] == FAILED else {}
        start = time.perf_counter()
        try:
            request = self.engine.submit(prompt, max_new_tokens=new, user=number % USERS, wait=wait, **options)
        except QueueFullError:
            self.outcomes[number] = Outcome(REFUSED, [], [])
            return
        thread = threading.Thread(target=self._follow, args=(number, request, start), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _follow(self, number, request, start):
        fate, tokens, seconds, kind = self.fates[number], [], [], ANSWERED
        stream = request.stream()
        try:
            for token in stream:
                tokens.append(token)
                seconds.append(time.perf_counter() - start)
                if fate == LEFT and len(tokens) == 2:
                    stream.close()
                    kind = LEFT
                    break
                if fate == CANCELED and len(tokens) == 3:
                    request.cancel()
        except RequestCancelledError:
            kind = CANCELED
        except EngineError:
            kind = FAILED
        self.outcomes[number] = Outcome(kind, tokens, seconds)


def row(load, outcomes, expected, fates, seconds, offline):
    """Returns a row of the table."""
    kinds = [each.kind for each in outcomes]
    accepted = [fate for fate, kind in zip(fates, kinds, strict=True) if kind != REFUSED]
    # Requests without a fault, and their tokens in the offline run.
    whole = [(each, text) for fate, each, text in zip(fates, outcomes, expected, strict=True) if fate == ANSWERED]
    answered = [(each, text) for each, text in whole if each.kind == ANSWERED]
    first = [each.seconds[0] for each, _ in answered]
    between = np.concatenate([np.diff(each.seconds) for each, _ in answered])
    tokens = sum(len(each.tokens) for each in outcomes)
    return {
        "load": load,
        "accepted": len(accepted),
        "refused": kinds.count(REFUSED),
        "answered": f"{len(answered)}/{accepted.count(ANSWERED)}",
        "same_tokens": f"{sum(each.tokens == text for each, text in answered)}/{len(answered)}",
        **{fate: kinds.count(fate) for fate in FAULTS},
        "tokens_per_s": round(tokens / seconds, 1),
        "of_offline": round(tokens / seconds / offline, 3),
        "first_token_ms": percentiles(first),
        "between_tokens_ms": percentiles(between),
    }


def percentiles(seconds):
    """Returns the 50th, 90th and 99th percentile in milliseconds, as text."""
    return " / ".join(f"{1e3 * value:.0f}" for value in np.percentile(seconds, (50, 90, 99)))


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1.0, 1.5], help="shares of the capacity")
    parser.add_argument("--batch", type=int, default=16, help="rows of the longest length that the cache holds")
    parser.add_argument("--rows", type=int, default=32, help="maximum number of rows of the engine")
    parser.add_argument("--waiting", type=int, default=128, help="maximum length of the queue")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quantize", choices=["int8"], help="data type of keys and values")
    parser.add_argument("--vocabulary", type=int, default=8192)
    return parser.parse_args()


def main():
    options = parse()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    lengths = TINY if options.tiny else LENGTHS
    measures = GPT2._replace(max_sequence_length=sum(map(max, lengths)), vocabulary_size=options.vocabulary)
    if options.tiny:
        measures = tiny(measures)
    keras.utils.set_random_seed(0)
    model = ours(measures)
    requests = make_requests(options.requests, measures.vocabulary_size, lengths)
    sizes = sizes_of_engine(options, measures)
    engine = Engine(model, quantize=options.quantize, max_waiting=options.waiting, **sizes).warm_up()
    everything = Load(engine, requests, [ANSWERED] * len(requests))
    seconds = everything.run([0.0] * len(requests), wait=None)
    expected = [each.tokens for each in everything.outcomes]
    offline = sum(map(len, expected)) / seconds
    alone = [model.generate(prompt, max_new_tokens=new) for prompt, new in requests[:ALONE]]

    title = f"{len(requests)} requests, {options.rows} rows, capacity {len(requests) / seconds:.2f} requests/s"
    table = Table(title, versions("keras-transformer", "keras", "tensorflow"))
    rng = np.random.default_rng(1)
    fates = [FAULTS[number % GROUP] if number % GROUP < len(FAULTS) else ANSWERED for number in range(len(requests))]
    for load in options.loads:
        engine.reset_prefix_cache()
        fates = rng.permutation(fates).tolist()
        arrivals = np.cumsum(rng.exponential(seconds / len(requests) / load, len(requests)))
        course = Load(engine, requests, fates)
        took = course.run(arrivals)
        table.add(**row(load, course.outcomes, expected, fates, took, offline))
    stats = engine.stats()
    engine.close(drain=True)
    same = sum(text == other for text, other in zip(alone, expected, strict=False))
    table.note(f"All at once: {offline:.1f} tokens/s; {same}/{len(alone)} texts are those of each request alone.")
    table.note(f"Times are the 50th, 90th and 99th percentile. Preempted: {stats['preemptions']} times.")
    table.note(f"Blocks still in use at the end: {stats['blocks_used']}.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
