"""Seconds and peak memory of an export by the size of the model, each export in a process of its own.

    python benchmarks/export_cost.py                             # 6 to 48 layers, three widths, all formats
    python benchmarks/export_cost.py --formats onnx --json cost.json
    python benchmarks/export_cost.py --smollm2 CHECKPOINT_FOLDER  # a real model too
    python benchmarks/export_cost.py --peers                     # Keras's `model.export` of the same network too

The models are decoders with rotary positions and random weights, exported with their cache and verified. The exponents
are slopes of a line through the logarithms: 1 is linear in the number of weights or of layers.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from measure import Table, arguments, versions

LAYERS, WIDTHS, WORDS = (6, 12, 24, 48), (192, 384, 576), 4096
PEERS = {"onnx": "onnx", "tflite": "litert"}


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    parser.add_argument("--words", type=int, default=WORDS, help="size of the vocabulary")
    parser.add_argument("--formats", nargs="+", default=["saved_model", "tflite", "onnx"])
    parser.add_argument("--smollm2", metavar="DIR", help="folder of a Hugging Face checkpoint to export as well")
    parser.add_argument("--peers", action="store_true", help="also Keras's model.export, without cache or check")
    parser.add_argument("--worker", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        options.layers, options.widths, options.words = [1, 2], [32], 64
    return options


def build(case):
    """The language model of a case."""
    from keras_transformer import models, tasks
    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.positions import Rotary

    if case["checkpoint"]:
        return from_huggingface(case["checkpoint"])
    width, heads = case["width"], max(1, case["width"] // 64)
    shared = heads // 3 if heads % 3 == 0 else heads
    size = models.Size(case["layers"], width, heads, width * 8 // 3)
    backbone = models.Llama(size, case["words"], num_key_value_heads=shared, position=Rotary(1e5, "halves"))
    return tasks.LanguageModel(backbone, tie_embeddings=True)


def work(case):
    """Exports one model in this process; prints the seconds, the peak memory and the weights in bytes as JSON."""
    from keras_transformer.export import export

    model = build(case)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        if case["peer"]:
            model.export(os.path.join(folder, "model"), format=case["peer"], verbose=False)
        else:
            export(model, os.path.join(folder, "bundle"), formats=case["formats"])
        seconds = time.perf_counter() - start
    kilobytes = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    weights = sum(int(math.prod(each.shape)) * 4 for each in model.variables)
    print(json.dumps({"seconds": seconds, "peak": sum(kilobytes) * 1024, "weights": weights}))


def measured(**case):
    """The figures of `work` in a process of its own, or its error."""
    case = {"layers": 0, "width": 0, "words": 0, "formats": [], "checkpoint": None, "peer": None} | case
    command = [sys.executable, __file__, "--worker", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["ended"])[-1][:100]}
    found = json.loads(done.stdout.splitlines()[-1])
    figures = {"weights MB": found["weights"] / 1e6, "seconds": found["seconds"], "peak GB": found["peak"] / 1e9}
    return {name: round(value, 2) for name, value in figures.items()}


def exponent(sizes, figures):
    """The slope of a line through the logarithms."""
    return statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, figures)]).slope


def add_exponents(table, rows, key):
    """Adds a note with the exponents of the seconds and of the peak memory over `key`."""
    good = [row for row in rows if "seconds" in row]
    if len({row[key] for row in good}) > 1:
        slopes = [exponent([row[key] for row in good], [row[name] for row in good]) for name in ("seconds", "peak GB")]
        table.notes.append(f"exponents over {key}: seconds {slopes[0]:.2f}, peak memory {slopes[1]:.2f}")


def main():
    options = parse()
    if options.worker:
        work(json.loads(options.worker))
        return
    packages = versions("keras-transformer", "keras", "tensorflow", "tf2onnx", "onnxruntime", "ai-edge-litert")
    table = Table(f"Cost of an export to {', '.join(options.formats)}", packages)
    cases = [(layers, options.widths[-1]) for layers in options.layers]
    cases += [(options.layers[0], width) for width in options.widths[:-1]]
    for layers, width in cases:
        case = {"layers": layers, "width": width, "words": options.words}
        table.add(network="ours", layers=layers, width=width, **measured(**case, formats=options.formats))
        for name in options.formats if options.peers and layers == options.layers[0] else ():
            if name in PEERS:
                row = measured(**case, peer=PEERS[name])
                table.add(network=f"Keras {PEERS[name]}", layers=layers, width=width, **row)
    ours = [row for row in table.rows if row["network"] == "ours"]
    add_exponents(table, [row for row in ours if row["width"] == options.widths[-1]], "layers")
    add_exponents(table, [row for row in ours if row["layers"] == options.layers[0]], "weights MB")
    if options.smollm2:
        table.add(network="checkpoint", **measured(checkpoint=options.smollm2, formats=options.formats))
    table.finish(options.json)


if __name__ == "__main__":
    main()
