"""A conversation in every engine: how a turn is read, whether all engines write the same, and what the kept cache is worth.

    python benchmarks/conversation.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --bundle BUNDLE
    python benchmarks/conversation.py --tiny    # smoke test: a tiny model with random weights

The bundle is a float32 export of the same model. Needs `pip install ".[chat,gguf]"`. After the conversation the cache is
compared with one that reads the whole text at once, and with one that reads the same pieces again.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import statistics
import tempfile
import time

import numpy as np
from measure import Table, arguments, versions

ENGINES = ("keras", "onnx", "tflite", "saved_model")
QUESTIONS = """What is the capital of France?
And of Italy?
Which of the two is older?
Name a river there.
How long is it?
What do people there like to eat?
Can I cook that at home?
Write a short poem about it.
Now without rhymes.
Thanks. What is 12 times 12?
And half of that?
Is it a prime number? Say yes or no, then explain to me in a few words how you found out whether it is one.
Tell me a joke about numbers.
Explain it.
What is a cat?
And a dog?
Which of them sleeps longer?
Why?
What did I ask you first?
Goodbye!""".splitlines()
TEMPLATE = (
    "{% for each in messages %}{{ each.role }}: {{ each.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class Recorder:
    """The steps of a model, with their calls: the name of each, its arguments but for the cache, and seconds."""

    def __init__(self, steps):
        self.steps, self.spec, self.take_rows = steps, steps.spec, steps.take_rows
        self.calls = []

    def init_cache(self, *given):
        return self._call("init_cache", None, *given)

    def grow(self, cache, length):
        return self._call("grow", cache, length)

    def extend(self, token_ids, cache, cache_index):
        return self._call("extend", cache, token_ids, cache_index)

    def decode_step(self, token_ids, cache, cache_index):
        return self._call("decode_step", cache, token_ids, cache_index)

    def _call(self, name, cache, *given):
        start = time.perf_counter()
        found = called(self.steps, name, cache, *given)
        self.calls.append((name, [np.array(each) for each in given], time.perf_counter() - start))
        return found

    def reads(self):
        """The calls that read tokens: name, tokens and index."""
        return [(name, *given) for name, given, _ in self.calls if name in ("extend", "decode_step")]


def called(steps, name, cache, *given):
    if name == "init_cache":
        return steps.init_cache(*map(int, given))
    if name == "grow":
        return steps.grow(cache, int(given[0]))
    return getattr(steps, name)(given[0], cache, given[1])


def text_of(reads):
    """The tokens that the cache has after these reads."""
    tokens = []
    for _, token_ids, index in reads:
        tokens = [*tokens[: int(index[0])], *token_ids[0].tolist()]
    return tokens


def read_again(steps, calls):
    """A cache that reads the same pieces."""
    cache = None
    for name, given, _ in calls:
        found = called(steps, name, cache, *given)
        cache = found[1] if isinstance(found, tuple) else found
    return cache


def read_whole(steps, tokens):
    """A cache that reads a text at once."""
    cache = steps.grow(steps.init_cache(1, 1), len(tokens))
    return steps.prefill(np.array([tokens], "int32"), np.array([len(tokens)], "int32"), cache)[1]


def arrays(cache, steps, count):
    """The tensors of a cache; of keys and values the slots that are used."""
    if hasattr(steps, "as_numpy"):
        # Copies: those of ONNX Runtime end with the cache.
        found = {name: np.array(steps.as_numpy(tensor)) for name, tensor in cache.items()}
    else:
        from keras import ops

        found = {name: ops.convert_to_numpy(tensor) for name, tensor in cache.items()}
    return {name: x[:, :, :count] if name.endswith(("_key", "_value")) else x for name, x in found.items()}


def difference(found, expected):
    """The largest difference, as a share of the largest number of its tensor."""
    return max(float(np.abs(found[name] - x).max() / np.abs(x).max()) for name, x in expected.items())


def measure(table, name, generator, options, expected):
    """Adds a row for one engine, and returns its answers."""
    recorder = Recorder(generator.steps)
    conversation = generator.with_steps(recorder).conversation()
    seconds, cpu_seconds, turn_calls, answers = [], [], [], []
    for question in QUESTIONS[: options.turns]:
        before, start, cpu = len(recorder.reads()), time.perf_counter(), time.process_time()
        answers.append(conversation.send(question, max_new_tokens=options.new))
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu)
        turn_calls.append(sum(kind == "extend" for kind, *_ in recorder.reads()[before:]))
    reads, calls = recorder.reads(), list(recorder.calls)
    tokens, steps = text_of(reads), generator.steps
    whole = arrays(read_whole(steps, tokens), steps, len(tokens))
    again = [arrays(read_again(steps, calls), steps, len(tokens)) for _ in range(2)]
    expected = answers if expected is None else expected
    num_read = sum(token_ids.shape[1] for _, token_ids, _ in reads)
    table.add(
        engine=name,
        seconds=round(sum(seconds), 1),
        cpu_seconds=round(sum(cpu_seconds), 1),
        first_turn=round(seconds[0], 2),
        median_turn=round(statistics.median(seconds), 2),
        slowest_later=round(max(seconds[1:]), 2),
        calls=len(reads),
        reading_calls=sum(turn_calls),
        most_in_a_turn=max(turn_calls),
        tokens=len(tokens),
        tokens_read=num_read,
        read_once=num_read == len(tokens),
        same_answers=f"{sum(a == b for a, b in zip(answers, expected, strict=True))}/{len(answers)}",
        from_whole=float(f"{difference(again[0], whole):.1e}"),
        bit_equal=all(np.array_equal(again[0][key], again[1][key]) for key in whole),
    )
    return answers


def tiny_model():
    """A model with random weights, which is certain of its tokens."""
    import keras

    from keras_transformer import models, tasks
    from keras_transformer.text import BytePair, HuggingFaceTokenizer

    keras.utils.set_random_seed(0)
    source = BytePair.train(QUESTIONS, 290)
    content = source._files()["tokenizer.json"].decode()
    tokenizer = HuggingFaceTokenizer(content, source.special_tokens, chat_template=TEMPLATE)
    backbone = models.Decoder(models.Size(1, 16, 2, 24), tokenizer.vocabulary_size, position="rotary", norm="rms_norm")
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer, end_id=tokenizer.end_id)
    for weight in model.weights:
        weight.assign(weight + 0.7 * keras.random.normal(weight.shape, seed=len(weight.shape)))
    return model


def opened(name, options, make_model, bundle):
    """The generator of an engine."""
    if name == "keras":
        return make_model().generator()
    from keras_transformer.export import load

    return load(bundle, name, num_threads=options.threads)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--gguf", metavar="FILE", help="a language model")
    parser.add_argument("--bundle", metavar="DIR", help="its float32 bundle")
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help="those to run; the others are compared with the first"
    )
    parser.add_argument("--turns", type=int, default=len(QUESTIONS), help="at most 20")
    parser.add_argument("--new", type=int, default=32, help="maximum number of tokens of an answer")
    parser.add_argument("--threads", type=int, default=2, help="of the runtimes")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    if options.tiny:
        options.turns, options.new, options.engines = 4, 5, ["keras", "onnx"]
    elif options.gguf is None or (options.bundle is None and options.engines != ["keras"]):
        parser.error("--gguf and --bundle are needed without --tiny")
    return options


def main():
    options = parse()
    from keras_transformer.checkpoints import from_gguf

    make_model = tiny_model if options.tiny else lambda: from_gguf(options.gguf)
    table = Table(
        f"A conversation of {options.turns} turns", versions("keras-transformer", "tensorflow", "onnxruntime")
    )
    answers = None
    with tempfile.TemporaryDirectory() as work:
        bundle = options.bundle
        if options.tiny:
            from keras_transformer.export import export

            bundle = pathlib.Path(work, "tiny")
            export(make_model(), bundle, formats=["onnx"], progress=False)
        for name in options.engines:
            found = measure(table, name, opened(name, options, make_model, bundle), options, answers)
            answers = found if answers is None else answers
    table.note(
        f"Greedy, at most {options.new} tokens an answer; seconds with all compilation, {options.threads} threads."
    )
    table.note("reading_calls: those that read what is new in a turn, out of all calls; most_in_a_turn: of them.")
    table.note("tokens: of the whole text; tokens_read: by all calls. read_once: whether they are equal.")
    table.note("same_answers: equal to those of the first engine.")
    table.note(
        "from_whole: how far the cache is from one that reads the text at once, as a share of the largest number of a "
        "tensor. bit_equal: whether two caches that read the same pieces are equal bit for bit."
    )
    table.finish(options.json)


if __name__ == "__main__":
    main()
