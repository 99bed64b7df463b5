"""A real language model in the engines that run it: decoding, reading, a kept conversation, loading, memory.

    python benchmarks/real_llm.py [--agreement 20] --text FILE --tokenizer BUNDLE \\
        --engine "ours, 4 bits=onnx:BUNDLE" --engine "llama.cpp, Q4_1=llama.cpp:FILE.gguf" [--libraries FOLDER]
        [--engine "genai, int4=genai:FOLDER"] [--engine "OpenVINO, Q4_1=openvino:FILE.gguf"]
        [--engine "CTranslate2, int8=ctranslate2:FOLDER"] [--python VENV/bin/python]

The kinds of engines are those of `llm_worker.py`; `onnx`, `tflite` and `saved_model` are bundles of this project, `keras` a
folder of a checkpoint, `onnx-head:BUNDLE:FILE` a bundle with a draft head (`examples/draft_head.py`). Every engine has a
process of its own, which loads its model once; the processes take turns, and all are greedy. The first engine of the list is
compared with each other one. With `--agreement`, 200 tokens after so many prompts are compared, and nothing is timed. The
peers may live in another environment: `--python`. llama.cpp runs from the libraries in npm's package
`@node-llama-cpp/linux-x64`, in its folder `bins/linux-x64`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np
from measure import Table, Turn, arguments, ratio, ratio_note, take_turns, versions

OWN, TINY = ("onnx", "onnx-lookup", "onnx-head", "tflite", "saved_model", "keras"), ("onnx", "onnx-lookup", "tflite")
WORKER = pathlib.Path(__file__).with_name("llm_worker.py")


class Sizes(NamedTuple):
    """Numbers of tokens: generated after a prompt, read at once, and read after a conversation that is kept."""

    new: int = 128
    prompt: int = 32
    long: int = 512
    conversation: int = 2000
    question: int = 24

    @property
    def longest(self):
        return self.conversation + self.question + self.new


class Engine:
    """An engine in its process.

    Args:
        kind: key of `llm_worker.ENGINES`.
        path: path of the model.
        length: int. Tokens of the longest text.
        options: the options of the command.
    """

    def __init__(self, kind, path, length, options):
        python = sys.executable if kind in OWN else options.python
        words = [python, str(WORKER), kind, path, str(options.threads), str(length)]
        words += [options.libraries] if kind.startswith("llama.cpp") else []
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self._process.stdout.readline() or '{"error": "does not start"}')
        if "error" in ready:
            raise RuntimeError(f"{kind} {ready['error']}: {path}")
        self.load, self.version, self.memory = ready["load"], ready["version"], 0.0

    def run(self, task):
        """Does a task of `llm_worker.run`; returns its tokens and its `Turn`, or two None where it cannot."""
        self._process.stdin.write(json.dumps({"kept": None, "new": 1} | task) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        if "error" in found:
            return None, None
        self.memory = found["memory"]
        return found["tokens"], Turn(found["wall"], found["cpu"])

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(60)


def tasks_of(tokens, sizes):
    """The tasks by name: each a function of the number of a turn, which reads another part of the text each time."""

    def part(turn, count):
        start = turn * 97 % (len(tokens) - count)
        return [int(each) for each in tokens[start : start + count]]

    return {
        f"decode {sizes.new}": lambda turn: {"prompt": part(turn, sizes.prompt), "new": sizes.new},
        f"read {sizes.long}": lambda turn: {"prompt": part(turn, sizes.long)},
        f"{sizes.question} after {sizes.conversation}": lambda turn: {
            "kept": part(turn, sizes.conversation),
            "prompt": part(turn + 5, sizes.question),
        },
    }


def measure(table, engines, tasks, rounds):
    """A row for each task and engine."""
    first = next(iter(engines))
    for task, make in tasks.items():
        able = {name: each for name, each in engines.items() if each.run(make(0))[1]}
        texts = {name: each.run(make(1))[0] for name, each in able.items()}
        numbers = dict.fromkeys(able, 0)

        def turn_of(name, make=make, numbers=numbers):
            numbers[name] += 1
            return engines[name].run(make(numbers[name]))[1]

        turns = take_turns({name: (lambda name=name: turn_of(name)) for name in able}, rounds)
        for name, found in turns.items():
            seconds = statistics.median(each.wall for each in found)
            figures = {"ms": round(1e3 * seconds, 1), "tokens/s": round(_count(make(0)) / seconds, 1)}
            compared = ratio(turns[first], found) if name != first and first in turns else {}
            table.add(
                task=task, engine=name, **figures, same_tokens=_agreement(texts.get(first), texts[name]), **compared
            )
    for name, each in engines.items():
        table.add(task="load to first token", engine=name, ms=round(1e3 * each.load, 1))
        table.add(task="peak memory", engine=name, GB=round(each.memory, 3))


def compare(table, engines, tokens, prompts):
    """A row for each engine: how much of its texts the first engine writes too."""
    expected, new, length = [], 200, 16
    starts = np.linspace(0, len(tokens) - length, prompts).astype(int)
    tasks = [{"prompt": tokens[at : at + length].tolist(), "new": new} for at in starts]
    for name, engine in engines.items():
        texts = [engine.run(task)[0] for task in tasks]
        expected = expected or texts
        equal = [_agreement(*pair) for pair in zip(expected, texts, strict=True)]
        table.add(
            engine=name, equal_texts=f"{equal.count(new)} of {prompts}", equal_tokens=sum(equal), of=new * prompts
        )


def _count(task):
    return task["new"] if task.get("new", 1) > 1 else len(task["prompt"])


def _agreement(expected, found):
    """How many tokens are equal from the start on."""
    if expected is None:
        return None
    return next((at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]), len(found))


def read_tokens(options):
    """The token ids of the text."""
    from keras_transformer.export.bundle.manifest import read_manifest
    from keras_transformer.export.bundle.tokenizers import read_tokenizer

    folder = pathlib.Path(options.tokenizer)
    text = pathlib.Path(options.text).read_text(encoding="utf-8", errors="replace")
    return np.array(read_tokenizer(folder, read_manifest(folder)).encode(text[:200_000]), "int32")


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=KIND:PATH", help="the first is compared")
    parser.add_argument("--text", metavar="FILE", help="a text to read")
    parser.add_argument("--tokenizer", metavar="DIR", help="a bundle with the tokenizer of the model")
    parser.add_argument("--libraries", metavar="DIR", help="folder of llama.cpp's libraries")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers")
    parser.add_argument("--agreement", type=int, default=0, metavar="PROMPTS", help="compare texts, time nothing")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not options.tiny and not (options.engine and options.text and options.tokenizer):
        parser.error("--engine, --text and --tokenizer are needed without --tiny")
    return options


def tiny(folder):
    """A bundle of a small model, in two runtimes, and random tokens."""
    from quantized_language import tiny as small_bundle

    small_bundle(folder)
    return [f"{kind}={kind}:{folder}" for kind in TINY], np.random.default_rng(0).integers(0, 64, 200)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as work:
        wishes, tokens = tiny(pathlib.Path(work, "tiny")) if options.tiny else (options.engine, read_tokens(options))
        sizes = Sizes(4, 8, 16, 32, 4) if options.tiny else Sizes()
        table = Table(f"A real language model, {options.threads} threads", versions("keras-transformer", "onnxruntime"))
        engines = {}
        for wish in wishes:
            name, _, where = wish.partition("=")
            kind, _, path = where.partition(":")
            engines[name] = Engine(kind, path, sizes.longest, options)
            if engines[name].version:
                table.versions[kind] = engines[name].version
        if options.agreement:
            compare(table, engines, tokens, options.agreement)
        else:
            measure(table, engines, tasks_of(tokens, sizes), options.rounds)
        for each in engines.values():
            each.close()
    if not options.agreement:
        table.note(ratio_note(options.rounds))
        table.note("same_tokens: equal to the first engine's from the start on, of one text")
    table.finish(options.json)


if __name__ == "__main__":
    main()
