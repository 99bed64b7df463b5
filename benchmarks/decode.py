"""Tokens per second of greedy generation: ours in Keras and in the three runtimes, KerasHub (XLA), Hugging Face (torch).

    python benchmarks/decode.py                         # 6 layers x 384, 50,257 words, prompt 32, 128 new tokens
    python benchmarks/decode.py --curve 896             # and the time per token by position
    python benchmarks/decode.py --quantize int8         # and with quantized files

All rivals have the same architecture and weights, and must generate the same tokens before they are timed (except quantized
files). The limit is the memory bandwidth: with one row, each token reads every weight once.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import concurrent.futures
import functools
import statistics
import time

import keras
import numpy as np
from gpt2 import GPT2, hugging_face, keras_hub, ours
from measure import (
    Table,
    arguments,
    kept,
    limit_tensorflow_threads,
    ratio,
    ratio_note,
    take_turns,
    timed,
    versions,
    working_folder,
)

from keras_transformer.export import ExportOptions, GenerationOptions, export, load

BACKENDS = ("saved_model", "tflite", "onnx")
PEERS = ("keras_hub", "hugging_face")


def rivals(options, measures, directory):
    """Returns a dict of name to a function of prompt and number of new tokens that returns the new tokens."""
    model = ours(measures)
    sizes = {"static_length": measures.static_length, "prefill_buckets": (options.prompt,)}
    chosen = ExportOptions(generation=GenerationOptions(whole_graph=False, **sizes))
    found = {"keras, XLA": model.generator()}
    for mode in [None, *options.quantize] if options.formats else []:
        make = functools.partial(export, model, formats=options.formats, quantize=mode, options=chosen)
        path = kept(directory if mode is None else directory.with_name(mode), make)
        for name in options.formats:
            found[f"{name}, {mode}" if mode else name] = load(path, name, num_threads=options.threads)
    generators = {
        name: lambda prompt, new, generator=generator: generator.generate(prompt, max_new_tokens=new)
        for name, generator in found.items()
    }
    if "keras_hub" in options.peers:
        generators["KerasHub, XLA"] = keras_hub(model, measures)
    if "hugging_face" in options.peers:
        generators["Hugging Face, torch"] = hugging_face(model, measures, options.threads)
    return model, found, generators


def check(generators, prompt, new, quantize):
    """Raises an error unless all rivals generate the same tokens, except quantized ones."""
    expected, *_ = texts = {name: list(map(int, run(prompt, new))) for name, run in generators.items()}.values()
    for name, tokens in zip(generators, texts, strict=True):
        if tokens != expected and not name.endswith(tuple(quantize)):
            raise RuntimeError(f"{name} generates other tokens than {next(iter(generators))}")


def bandwidth(threads, megabytes=512):
    """Returns the memory bandwidth of all threads in bytes per second: the best of five passes over a large array."""
    parts = np.array_split(np.ones(megabytes << 18, "float32"), threads)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        best = min(_seconds(lambda: list(pool.map(np.add.reduce, parts))) for _ in range(5))
    return (megabytes << 20) / best


def _seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def curve(table, generators, prompt, new, bucket=128):
    """Returns the median time per token in each section of the text."""
    for name, generator in generators.items():
        list(generator.stream(prompt, max_new_tokens=new))
        ticks = [time.perf_counter() for _ in generator.stream(prompt, max_new_tokens=new)]
        steps = np.diff(ticks) * 1e3
        row = {
            f"to {end}": round(statistics.median(steps[end - bucket : end]), 2) for end in range(bucket, new, bucket)
        }
        table.add(rival=name, **row)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--formats", nargs="*", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--quantize", nargs="*", default=[], metavar="MODE", help="also measure quantized files")
    parser.add_argument("--files", metavar="DIR", help="directory to keep and reuse exported files in")
    parser.add_argument(
        "--curve", type=int, metavar="N", help="also measure the time per token in sections of 128 of N tokens"
    )
    return parser.parse_args()


def main():
    options = parse()
    limit_tensorflow_threads(options.threads)
    measures = GPT2._replace(num_layers=1, hidden_dim=16, vocabulary_size=50) if options.tiny else GPT2
    measures = measures._replace(static_length=options.prompt + max(options.new, options.curve or 0))
    packages = (
        "keras-transformer",
        "keras",
        "tensorflow",
        "ai-edge-litert",
        "onnxruntime",
        "keras-hub",
        "transformers",
    )
    title = f"Greedy generation, prompt {options.prompt}, {options.new} new tokens, {options.threads} threads"
    table = Table(title, versions(*packages, "torch"))
    keras.utils.set_random_seed(0)
    prompt = np.random.default_rng(0).integers(0, measures.vocabulary_size, options.prompt).tolist()
    with working_folder(options.files, "decode") as folder:
        model, own, generators = rivals(options, measures, folder / "bundle")
        check(generators, prompt, min(options.new, 16), options.quantize)
        runs = {name: timed(lambda run=run: run(prompt, options.new), 1) for name, run in generators.items()}
        turns = take_turns(runs, options.rounds)
        limit = bandwidth(options.threads) / read_per_token(model)
        peers = [name for name in generators if name not in own]
        fastest = max(peers, key=lambda name: speed(turns[name], options.new), default=None)
        for name in generators:
            tokens = speed(turns[name], options.new)
            row = {"rival": name, "tokens_per_s": round(tokens, 1), "share_of_bandwidth": round(tokens / limit, 2)}
            if name in own and fastest:
                row |= ratio(turns[name], turns[fastest])
            table.add(**row)
        if options.curve:
            curve(table, own, prompt, options.curve)
    table.note(
        f"share_of_bandwidth: of {limit:.0f} tokens/s, the limit for reading the float32 weights once per token."
    )
    if fastest:
        table.note(f"Against {fastest}, the faster peer. {ratio_note(options.rounds)}")
    if options.curve:
        table.note("to N: median ms per token, by the number of generated tokens.")
    table.finish(options.json)


def speed(turns, new):
    return new / statistics.median(turn.wall for turn in turns)


def read_per_token(model):
    """Returns the bytes of the weights read per token: all except the position table, of which one row is read."""
    sizes = {weight.path: np.prod(weight.shape) * 4 for weight in model.weights}
    return sum(size for path, size in sizes.items() if "position_embedding" not in path)


if __name__ == "__main__":
    main()
