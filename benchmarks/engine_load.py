"""Requests that arrive at random: what an engine answers, how soon, and what is left of its offline throughput.

    python benchmarks/engine_load.py                       # 1,000 requests at 0.5, 1.0 and 1.5 of the capacity
    python benchmarks/engine_load.py --quantize int8       # with keys and values in 8 bits
    npm install --ignore-scripts node-llama-cpp @node-llama-cpp/linux-x64
    python benchmarks/engine_load.py --model FILE.gguf --bundle DIR --llama-cpp node_modules --vllm VENV/bin/python

The model, prompts and lengths are those of `benchmarks/engine.py`. With `--model` it is a checkpoint, whose bundle of ONNX
runs in our engine, and which peers load too: as many rows, weights in float32, the same arrivals; to them every request is
sent without a fault, and their queues have no end. The capacity is the rate at which our engine answers all requests when
they arrive at once. Then they arrive as a Poisson process at a share of it. Of 20 requests one stops reading
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
from engine import LENGTHS, TINY, make_requests, sizes_of_engine, tiny
from engine_load_peers import courses_of_peers
from gpt2 import GPT2, ours
from measure import Table, arguments, limit_tensorflow_threads, versions

from keras_transformer.checkpoints import from_gguf
from keras_transformer.export import export
from keras_transformer.export import load as load_bundle
from keras_transformer.generation import Engine, EngineError, Greedy, QueueFullError, Random, RequestCancelledError

# What happens to a request. Of 20, one each is left, canceled and fails.
ANSWERED, LEFT, CANCELED, FAILED, REFUSED = "answered", "left", "canceled", "failed", "refused"
FAULTS, GROUP = (LEFT, CANCELED, FAILED), 20
# Requests whose tokens are compared with those of `generate`; those of the others with the offline run.
ALONE = 32
USERS = 8
OURS, ALL_AT_ONCE = "ours", "all at once"


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
        options = {"sampler": Poison() if self.fates[number] == FAILED else Greedy(), "stop": None}
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


def row(engine, load, outcomes, expected, fates, seconds, offline):
    """Returns a row of the table."""
    kinds = [each.kind for each in outcomes]
    accepted = [fate for fate, kind in zip(fates, kinds, strict=True) if kind != REFUSED]
    # Requests without a fault, and their tokens in the offline run.
    whole = [(each, text) for fate, each, text in zip(fates, outcomes, expected, strict=True) if fate == ANSWERED]
    answered = [(each, text) for each, text in whole if each.kind == ANSWERED]
    tokens = sum(len(each.tokens) for each in outcomes)
    return {
        "engine": engine,
        "load": load,
        "accepted": len(accepted),
        "refused": kinds.count(REFUSED),
        "answered": f"{len(answered)}/{accepted.count(ANSWERED)}",
        "same_tokens": f"{sum(each.tokens == text for each, text in answered)}/{len(answered)}",
        **{fate: kinds.count(fate) for fate in FAULTS},
        "tokens_per_s": round(tokens / seconds, 1),
        "of_offline": round(tokens / seconds / offline, 3),
        "first_token_ms": percentiles([each.seconds[0] for each, _ in answered]),
        "between_tokens_ms": percentiles(np.concatenate([np.diff(each.seconds) for each, _ in answered])),
    }


def rows_of_peer(name, courses, loads, expected):
    """Returns the rows of a peer; its first course is the offline one."""
    offline = sum(map(len, courses[0].tokens)) / courses[0].took
    fates = [ANSWERED] * len(expected)
    rows = []
    for load, course in zip((ALL_AT_ONCE, *loads), courses, strict=True):
        outcomes = [Outcome(ANSWERED, *each) for each in zip(course.tokens, course.seconds, strict=True)]
        rows.append(row(name, load, outcomes, expected, fates, course.took, offline))
    return rows


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
    parser.add_argument("--model", metavar="FILE", help="GGUF file of a language model, in place of random weights")
    parser.add_argument("--bundle", metavar="DIR", help="its bundle; with --model: exported there if it does not exist")
    parser.add_argument("--llama-cpp", metavar="DIR", help="node_modules with node-llama-cpp; with --model")
    parser.add_argument("--vllm", metavar="PYTHON", help="Python of an environment with vLLM; with --model")
    options = parser.parse_args()
    if (options.llama_cpp or options.vllm) and not options.model:
        parser.error("peers need --model: a checkpoint that they can load")
    if (options.model is None) != (options.bundle is None):
        parser.error("--model and --bundle need each other")
    return options


def models_of(options, lengths):
    """Returns the model that generates, and the Keras model."""
    if options.model:
        keras_model = from_gguf(options.model, verbose=0)
        if not os.path.exists(options.bundle):
            export(keras_model, options.bundle, formats=["onnx"])
        return load_bundle(options.bundle, num_threads=options.threads), keras_model
    measures = GPT2._replace(max_sequence_length=sum(map(max, lengths)), vocabulary_size=options.vocabulary)
    model = ours(tiny(measures) if options.tiny else measures)
    return model, model


def main():
    options = parse()
    limit_tensorflow_threads(options.threads)
    lengths = TINY if options.tiny else LENGTHS
    keras.utils.set_random_seed(0)
    model, keras_model = models_of(options, lengths)
    requests = make_requests(options.requests, keras_model.output_shape[-1], lengths)
    sizes = sizes_of_engine(options, sum(map(max, lengths)))
    measured(options, model, keras_model, requests, sizes).finish(options.json)


def measured(options, model, keras_model, requests, sizes):
    """Returns the table of our engine and of its peers."""
    engine = Engine(model, quantize=options.quantize, max_waiting=options.waiting, **sizes).warm_up()
    whole = [ANSWERED] * len(requests)
    everything = Load(engine, requests, whole)
    seconds = everything.run([0.0] * len(requests), wait=None)
    expected = [each.tokens for each in everything.outcomes]
    offline = sum(map(len, expected)) / seconds
    alone = [
        model.generate(prompt, max_new_tokens=new, sampler=Greedy(), stop=None) for prompt, new in requests[:ALONE]
    ]

    title = f"{len(requests)} requests, {options.rows} rows, capacity {len(requests) / seconds:.2f} requests/s"
    table = Table(title, versions("keras-transformer", "keras", "tensorflow"))
    table.add(**row(OURS, ALL_AT_ONCE, everything.outcomes, expected, whole, seconds, offline))
    rng = np.random.default_rng(1)
    fates = [FAULTS[number % GROUP] if number % GROUP < len(FAULTS) else ANSWERED for number in range(len(requests))]
    arrivals = []
    for load in options.loads:
        engine.reset_prefix_cache()
        fates = rng.permutation(fates).tolist()
        arrivals.append(np.cumsum(rng.exponential(seconds / len(requests) / load, len(requests))))
        course = Load(engine, requests, fates)
        took = course.run(arrivals[-1])
        table.add(**row(OURS, load, course.outcomes, expected, fates, took, offline))
    stats = engine.stats()
    engine.close(drain=True)
    for name, courses in courses_of_peers(options, keras_model, requests, [[0.0] * len(requests), *arrivals]):
        for each in rows_of_peer(name, courses, options.loads, expected):
            table.add(**each)
    same = sum(text == other for text, other in zip(alone, expected, strict=False))
    table.note(f"{same}/{len(alone)} texts are those of each request alone; of peers, those of our offline run.")
    table.note(f"Times are the 50th, 90th and 99th percentile. Preempted: {stats['preemptions']} times.")
    table.note(f"Blocks still in use at the end: {stats['blocks_used']}.")
    return table


if __name__ == "__main__":
    main()
