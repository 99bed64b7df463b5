"""Seconds and peak memory of an export by the size of the model, each export in a process of its own.

    python benchmarks/export_cost.py                             # 6 to 48 layers, three widths, all formats
    python benchmarks/export_cost.py --formats onnx --json cost.json
    python benchmarks/export_cost.py --smollm2 CHECKPOINT_FOLDER  # a real model too
    python benchmarks/export_cost.py --peers 6 24                # at 6 and 24 layers Keras's and PyTorch's exporters too
    python benchmarks/export_cost.py --layers --widths --encoders # BERT-base and ViT-B/16 with random weights, alone

The models are decoders with rotary positions and random weights, exported with their cache and verified. The exponents
are slopes of a line through the logarithms: 1 is linear in the number of weights or of layers.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
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
ENCODERS = ("BERT-base", "ViT-B/16")
PEERS = {"Keras onnx": "onnx", "Keras litert": "tflite", "PyTorch onnx": "onnx"}


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="*", type=int, default=list(LAYERS))
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--words", type=int, default=WORDS, help="size of the vocabulary")
    parser.add_argument("--formats", nargs="+", default=["saved_model", "tflite", "onnx"])
    parser.add_argument("--smollm2", metavar="DIR", help="folder of a Hugging Face checkpoint to export as well")
    parser.add_argument(
        "--peers", nargs="+", type=int, default=[], metavar="LAYERS", help="where to measure peers, which check nothing"
    )
    parser.add_argument("--encoders", action="store_true", help=f"{' and '.join(ENCODERS)} as well")
    parser.add_argument("--worker", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        options.layers, options.widths, options.words = [1, 2], [32], 64
    return options


def language_model(case):
    """The language model of a case."""
    from keras_transformer import models, tasks
    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.positions import Rotary

    if case["checkpoint"]:
        return from_huggingface(case["checkpoint"])
    size = models.Size(case["layers"], case["width"], heads(case)[0], intermediate_dim(case))
    backbone = models.Llama(size, case["words"], num_key_value_heads=heads(case)[1], position=Rotary(1e5, "halves"))
    return tasks.LanguageModel(backbone, tie_embeddings=True)


def encoder(name):
    """A published encoder with random weights."""
    from keras_transformer import models

    size = models.Size(12, 768, 12, 3072)
    return models.BERT(size, 30_522) if name == "BERT-base" else models.ViT(size, patch_size=16, image_size=224)


def torch_model(case):
    """The same network in PyTorch, from transformers, which returns logits for tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=case["words"],
        hidden_size=case["width"],
        intermediate_size=intermediate_dim(case),
        num_hidden_layers=case["layers"],
        num_attention_heads=heads(case)[0],
        num_key_value_heads=heads(case)[1],
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval()


def heads(case):
    """The numbers of heads, and of those with keys and values."""
    count = max(1, case["width"] // 64)
    return count, count // 3 if count % 3 == 0 else count


def intermediate_dim(case):
    """The width of the feed-forward networks."""
    return case["width"] * 8 // 3


def work(case):
    """Exports one model in this process; prints the seconds, the peak memory and the weights in bytes as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, weights = (torch_export if case["peer"] == "PyTorch onnx" else keras_export)(case, folder)
    kilobytes = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"seconds": seconds, "peak": sum(kilobytes) * 1024, "weights": weights}))


def keras_export(case, folder):
    """Exports by this package, or by Keras; the seconds, and the bytes of the weights."""
    import keras

    from keras_transformer.export import export

    model = encoder(case["encoder"]) if case["encoder"] else language_model(case)
    if case["peer"]:
        plain = keras.Model(model.inputs, model.outputs)
        # Keras's exporters want a model that was called.
        plain([keras.ops.ones((1, 16), each.dtype) for each in plain.inputs])
        path, format = os.path.join(folder, f"model.{PEERS[case['peer']]}"), case["peer"].split()[-1]
        write = functools.partial(plain.export, path, format=format, verbose=False)
    else:
        write = functools.partial(export, model, os.path.join(folder, "bundle"), formats=case["formats"])
    start = time.perf_counter()
    write()
    return time.perf_counter() - start, sum(int(math.prod(each.shape)) * 4 for each in model.variables)


def torch_export(case, folder):
    """Exports by PyTorch, as `keras_export`."""
    import torch

    model, tokens = torch_model(case), torch.ones(2, 16, dtype=torch.int64)
    axes = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    start = time.perf_counter()
    file = os.path.join(folder, "model.onnx")
    torch.onnx.export(
        model, kwargs={"input_ids": tokens}, f=file, dynamo=True, dynamic_shapes=axes, external_data=True, verbose=False
    )
    return time.perf_counter() - start, sum(each.numel() * 4 for each in model.parameters())


def measured(**case):
    """The figures of `work` in a process of its own, or its error."""
    case = {
        "layers": 0,
        "width": 0,
        "words": 0,
        "formats": [],
        "checkpoint": None,
        "peer": None,
        "encoder": None,
    } | case
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
    packages = ["keras-transformer", "keras", "tensorflow", "tf2onnx", "onnxruntime", "ai-edge-litert"]
    packages += ["torch", "transformers"] if options.peers else []
    table = Table(f"Cost of an export to {', '.join(options.formats)}", versions(*packages))
    cases = [(layers, options.widths[-1]) for layers in options.layers]
    cases += [(options.layers[0], width) for width in options.widths[:-1] if options.layers]
    for layers, width in cases:
        case = {"layers": layers, "width": width, "words": options.words}
        table.add(network="ours", layers=layers, width=width, **measured(**case, formats=options.formats))
        for peer, format in PEERS.items() if layers in options.peers and width == options.widths[-1] else ():
            if format in options.formats:
                table.add(network=peer, layers=layers, width=width, **measured(**case, peer=peer))
    ours = [row for row in table.rows if row["network"] == "ours"]
    add_exponents(table, [row for row in ours if row["width"] == options.widths[-1]], "layers")
    add_exponents(table, [row for row in ours if row["layers"] == options.layers[0]], "weights MB")
    for name in ENCODERS if options.encoders else ():
        table.add(network=name, **measured(encoder=name, formats=options.formats))
    if options.smollm2:
        table.add(network="checkpoint", **measured(checkpoint=options.smollm2, formats=options.formats))
    table.finish(options.json)


if __name__ == "__main__":
    main()
