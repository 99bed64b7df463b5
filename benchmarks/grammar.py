"""Share of answers that obey random JSON schemas, with a grammar and without, and what the grammar costs for each token.

    python benchmarks/grammar.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf
    python benchmarks/grammar.py --bundle bundle --backend onnx --schemas 100
    python benchmarks/grammar.py --tiny    # smoke test: a tiny model with random weights

Needs `pip install ".[grammar,chat,gguf]" jsonschema`. Both kinds of answers are written by the same loop, token by token.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dataclasses
import json
import random
import re
import statistics
import time

import jsonschema
from measure import Table, arguments, versions

from keras_transformer.generation import JsonSchema, Random

WORDS = "name age city color size price unit label count title status owner email kind score height note day team level"
PATTERNS = [r"^[A-Z]{3}-[0-9]{4}$", r"^[a-z]{2,8}@[a-z]{2,8}\.com$", r"^#[0-9a-f]{6}$", r"^(low|mid|high)-[1-9]$"]
DEPTH = 3


class SchemaMaker:
    """Random JSON schemas whose values are of limited length.

    Args:
        seed: int.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.words = WORDS.split()

    def object(self, depth=0):
        """An object of one to four properties, some of them optional."""
        names = self.random.sample(self.words, self.random.randint(1, 4))
        required = [name for name in names if self.random.random() < 0.8] or names[:1]
        properties = {name: self.value(depth + 1) for name in names}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def value(self, depth):
        kinds = [self.text, self.choice, self.integer, self.number, self.pattern, self.flag]
        nested = [lambda: self.object(depth), lambda: self.array(depth)]
        return self.random.choice(kinds + (nested if depth < DEPTH else []))()

    def array(self, depth):
        least = self.random.randint(0, 2)
        most = least + self.random.randint(1, 2)
        return {"type": "array", "items": self.value(depth + 1), "minItems": least, "maxItems": most}

    def text(self):
        return {"type": "string", "minLength": 1, "maxLength": self.random.randint(5, 25)}

    def choice(self):
        return {"enum": [*self.random.sample(self.words, 3), self.random.randint(0, 9)]}

    def integer(self):
        low = self.random.randint(-50, 100)
        return {"type": "integer", "minimum": low, "maximum": low + self.random.randint(1, 5000)}

    def number(self):
        return {"type": "number", "minimum": 0, "maximum": self.random.randint(1, 100)}

    def pattern(self):
        return {"type": "string", "pattern": self.random.choice(PATTERNS)}

    def flag(self):
        return {"type": ["boolean", "null"]}


class Clock:
    """The steps of a model, with the time and the number of its calls. It has no `generate`, so that the loop is used."""

    def __init__(self, steps):
        self.steps, self.spec, self.init_cache, self.take_rows = steps, steps.spec, steps.init_cache, steps.take_rows
        self.reset()

    def reset(self):
        self.prefill_seconds = 0.0
        self.step_seconds = []

    def prefill(self, *given):
        start = time.perf_counter()
        found = self.steps.prefill(*given)
        self.prefill_seconds += time.perf_counter() - start
        return found

    def decode_step(self, *given):
        start = time.perf_counter()
        found = self.steps.decode_step(*given)
        self.step_seconds.append(time.perf_counter() - start)
        return found


def is_valid(text, schema):
    """Whether a text is JSON of a schema; around it there may be blanks and the marks of a block of code."""
    text = re.sub(r"^```(json)?|```$", "", text.strip()).strip()
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def ask(generator, schema, most, **options):
    question = f"Write one JSON value of this JSON schema, and nothing else: {json.dumps(schema)}"
    options |= {"max_new_tokens": most, "sampler": Random(0.8, top_p=0.95)}
    if getattr(generator.tokenizer, "chat_template", None):
        return generator.chat(question, **options)
    return generator.generate(f"{question}\n", **options)


@dataclasses.dataclass
class Figures:
    """Sums over answers, and the time of each step; seconds."""

    valid: int = 0
    finished: int = 0
    tokens: int = 0
    steps: list[float] = dataclasses.field(default_factory=list)
    loop: float = 0.0
    first_use: float = 0.0

    @property
    def loop_of_a_token(self):
        return self.loop / self.tokens


def measure(generator, schemas, options, with_grammar):
    """`Figures` of one answer to each schema. What is done once for a grammar is timed apart."""
    clock, figures = Clock(generator.steps), Figures()
    generator = generator.with_steps(clock)
    ask(generator, schemas[0], options.new)  # Compiles.
    for number, schema in enumerate(schemas):
        grammar = {}
        if with_grammar:
            start = time.perf_counter()
            grammar["grammar"] = JsonSchema(schema)
            generator.plan("a", max_new_tokens=1, **grammar)
            figures.first_use += time.perf_counter() - start
        clock.reset()
        start = time.perf_counter()
        text = ask(generator, schema, options.new, seed=options.seed + number, **grammar)
        figures.loop += time.perf_counter() - start - clock.prefill_seconds - sum(clock.step_seconds)
        figures.steps += clock.step_seconds
        num_tokens = len(clock.step_seconds) + 1
        figures.tokens += num_tokens
        is_finished = num_tokens < options.new
        figures.finished += is_finished
        figures.valid += is_finished and is_valid(text, schema)
    return figures


def tiny():
    """The generator of a model with random weights, which writes bytes."""
    from keras_transformer import models, tasks
    from keras_transformer.text import Bytes

    backbone = models.Decoder(models.Size(1, 16, 2, 32), Bytes().vocabulary_size, position="rotary")
    return tasks.LanguageModel(backbone, tokenizer=Bytes()).generator()


def opened(options):
    """The generator of the model."""
    if options.tiny:
        return tiny()
    if options.bundle:
        from keras_transformer.export import load

        return load(options.bundle, options.backend)
    from keras_transformer.checkpoints import from_gguf

    return from_gguf(options.gguf).generator()


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--gguf", metavar="FILE", help="a language model")
    parser.add_argument("--bundle", metavar="DIR", help="an exported language model, instead")
    parser.add_argument("--backend", default="onnx", help="runtime of the bundle")
    parser.add_argument("--schemas", type=int, default=1000, help="number of random schemas")
    parser.add_argument("--plain", type=int, help="of these, how many are answered without a grammar too; default all")
    parser.add_argument("--new", type=int, default=500, help="maximum number of tokens of an answer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.tiny:
        options.schemas, options.new = min(options.schemas, 3), 200
    elif (options.gguf is None) == (options.bundle is None):
        parser.error("one of --gguf and --bundle is needed")
    return options


def main():
    options = parse()
    maker, generator = SchemaMaker(options.seed), opened(options)
    schemas = [maker.object() for _ in range(options.schemas)]
    table = Table("Answers that obey JSON schemas", versions("keras-transformer", "llguidance", "keras", "tensorflow"))
    few = schemas[: options.plain]
    plain, bound = measure(generator, few, options, False), measure(generator, schemas, options, True)
    for name, found, count in (("none", plain, len(few)), ("JsonSchema", bound, len(schemas))):
        step = statistics.median(found.steps)  # Some steps compile.
        extra = found.loop_of_a_token - plain.loop_of_a_token
        shares = {"valid": found.valid, "finished": found.finished, "valid of finished": found.valid}
        bases = {"valid of finished": found.finished}
        percent = {key: round(100 * value / max(bases.get(key, count), 1), 1) for key, value in shares.items()}
        table.add(
            grammar=name,
            schemas=count,
            **percent,
            tokens=found.tokens,
            model_ms=round(1e3 * step, 2),
            extra_ms=round(1e3 * extra, 3),
            extra_percent=round(100 * extra / (step + plain.loop_of_a_token), 2),
            first_use_ms=round(1e3 * found.first_use / count, 2),
        )
    table.note(f"Random schemas; sampled at temperature 0.8, top-p 0.95; at most {options.new} tokens.")
    table.note("valid, finished: percent of all answers; the others are cut at the maximum number of tokens.")
    table.note(
        "model_ms: one step of the model, the median. extra_ms: what the grammar adds to a token, and in percent of a token."
    )
    table.note("first_use_ms: what is done once for each schema.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
