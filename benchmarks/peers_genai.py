"""Tokens per second of onnxruntime-genai on decoders written by `export.write_genai`, against our own runtime.

    python benchmarks/peers_genai.py                            # 6 layers x 384, 50,257 words, prompt 32, 128 new tokens
    python benchmarks/peers_genai.py --python VENV/bin/python   # if the engine has a separate environment

The engine runs in a separate process, which waits for its turns; the texts must be equal before anything is timed.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import pathlib
import subprocess
import sys
import tempfile

from measure import Table, Turn, arguments, milliseconds, ratio, ratio_note, take_turns, timed, versions

OURS, ENGINE = "ours, ONNX Runtime", "onnxruntime-genai"
QUANTIZE = {"fp32": None, "int8": "int8", "weight_int8": "weight_int8", "weight_int4": "weight_int4"}

# Script in the engine's process: reads a line per turn and prints seconds and tokens.
_WORKER = """
import json, sys, time
from importlib import metadata
import numpy as np
import onnxruntime_genai as engine

directory, threads = sys.argv[1], int(sys.argv[2])
config = engine.Config(directory)
config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
model = engine.Model(config)

def decode(prompt, new):
    params = engine.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + new, do_sample=False)
    generator = engine.Generator(model, params)
    generator.append_tokens(np.array([prompt], "int32"))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0)[len(prompt):].tolist()

print("ready", metadata.version("onnxruntime-genai"), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = decode(task["prompt"], task["new"])
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "tokens": tokens}), flush=True)
"""


def is_installed(python=sys.executable):
    """Returns whether an interpreter has the engine installed."""
    return not subprocess.run([python, "-c", "import onnxruntime_genai"], capture_output=True).returncode


class Genai:
    """The engine in a separate process.

    Args:
        directory: path written by `write_genai`.
        threads: int.
        python: the interpreter of an environment that has onnxruntime-genai.

    Raises:
        RuntimeError: the engine does not run there.
    """

    def __init__(self, directory, threads=2, python=sys.executable):
        words = [python, "-c", _WORKER, str(directory), str(threads)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, _, self.version = self._process.stdout.readline().strip().partition(" ")
        if ready != "ready":
            self.close()
            raise RuntimeError(f"it does not run with {pathlib.Path(python).name}")

    def decode(self, prompt, new):
        """Decodes greedily; returns `(tokens, Turn)`."""
        self._process.stdin.write(json.dumps({"prompt": list(map(int, prompt)), "new": new}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["tokens"], Turn(answer["wall"], answer["cpu"])

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def tokens_per_second(model, prompt, new=128, *, quantize=None, threads=2, rounds=5, python=sys.executable):
    """Writes a decoder for onnxruntime-genai and times the engine on it.

    Args:
        model: `LanguageModel`.
        prompt: list of int.
        new: int. Tokens to generate.
        quantize: as for `write_genai`.
        threads, rounds: ints.
        python: the interpreter of an environment that has onnxruntime-genai.

    Returns:
        Dict of "tokens_per_second" (median), "bytes" of the model's files, and the generated "tokens".
    """
    from keras_transformer.export.engines.genai.model_directory import write_genai

    with tempfile.TemporaryDirectory() as folder:
        report = write_genai(model, pathlib.Path(folder, "model"), quantize=quantize)
        with Genai(report.directory, threads, python) as engine:
            tokens, _ = engine.decode(prompt, new)
            turns = sorted(engine.decode(prompt, new)[1].wall for _ in range(rounds))
    return {
        "tokens_per_second": round(len(tokens) / turns[rounds // 2], 1),
        "bytes": report["onnx"].size,
        "tokens": tokens,
    }


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has onnxruntime-genai")
    parser.add_argument("--quantize", nargs="*", choices=list(QUANTIZE), default=list(QUANTIZE))
    return parser.parse_args()


def compare(model, prompt, options, quantize):
    """Times our runtime and the engine in turns; returns `(turns, bytes, whether their tokens are equal)`."""
    from keras_transformer.export import ExportOptions, GenerationOptions, export, load
    from keras_transformer.export.engines.genai.model_directory import write_genai

    with tempfile.TemporaryDirectory() as folder:
        own, other = pathlib.Path(folder, "own"), pathlib.Path(folder, "genai")
        options = ExportOptions(generation=GenerationOptions(whole_graph=False))
        export(model, own, ["onnx"], quantize=quantize, options=options)
        size = write_genai(model, other, quantize=quantize)["onnx"].size
        generator = load(own, "onnx", num_threads=options.threads)

        def generate():
            return generator.generate(prompt, max_new_tokens=options.new)

        with Genai(other, options.threads, options.python) as engine:
            options.version = engine.version
            same = list(map(int, generate())) == engine.decode(prompt, options.new)[0]
            rivals = {OURS: timed(generate, 1), ENGINE: lambda: engine.decode(prompt, options.new)[1]}
            return take_turns(rivals, options.rounds), size, same


def main():
    import keras
    import numpy as np
    from gpt2 import GPT2, ours

    options = parse()
    tiny = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "vocabulary_size": 50}
    measures = GPT2._replace(**tiny) if options.tiny else GPT2
    keras.utils.set_random_seed(0)
    model = ours(measures)
    prompt = np.random.default_rng(0).integers(0, measures.vocabulary_size, options.prompt).tolist()
    title = f"onnxruntime-genai, prompt {options.prompt}, {options.new} new tokens, {options.threads} threads"
    table = Table(title, versions("keras-transformer", "onnxruntime"))
    for name in options.quantize:
        turns, size, same = compare(model, prompt, options, QUANTIZE[name])
        table.versions["onnxruntime-genai"] = options.version
        for rival, found in turns.items():
            figures = {"ms": milliseconds(found), "tokens/s": round(options.new / milliseconds(found) * 1e3, 1)}
            compared = ratio(turns[OURS], found) if rival == ENGINE else {}
            table.add(weights=name, rival=rival, **figures, MB=round(size / 1e6, 1), same_tokens=same, **compared)
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
