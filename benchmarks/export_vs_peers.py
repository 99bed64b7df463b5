"""Our exported files against those of peers, with the same weights, in one run: time, size and accuracy as ratios.

    python benchmarks/export_vs_peers.py                               # every group
    python benchmarks/export_vs_peers.py --groups fp32 --networks encoder --json encoder.json
    python benchmarks/export_vs_peers.py --groups decoder --python VENV/bin/python   # one that has onnxruntime-genai

A group is a module in this folder with a function `measure(table, options)` that adds its rows.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import importlib
import sys

import keras
from measure import Table, arguments, ratio_note, versions

GROUPS = {"fp32": "peers_fp32", "int8": "peers_int8", "tflite": "peers_tflite", "decoder": "peers_decoder"}
NETWORKS = ("encoder", "vit_s")
SIZES = ((1, 128), (8, 128), (1, 512), (8, 512))
TINY_SIZES = ((1, 4), (2, 8))


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument(
        "--sizes", nargs="+", type=size, metavar="BxT", help="batch size and length of the inputs of encoders"
    )
    parser.add_argument("--only", metavar="TEXT", help="only the PyTorch rivals whose name contains this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="calls in one turn")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has onnxruntime-genai")
    help = "directory to keep and reuse the files of the groups tflite and decoder in"
    parser.add_argument("--files", metavar="DIR", help=help)
    options = parser.parse_args()
    options.sizes = tuple(options.sizes or (TINY_SIZES if options.tiny else SIZES))
    return options


def size(text):
    """Parses `8x128` into two numbers."""
    try:
        batch, length = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not BATCHxLENGTH") from None
    return batch, length


def main():
    options = parse()
    packages = versions("keras-transformer", "keras", "keras-hub", "tensorflow", "torch", "onnx", "onnxruntime")
    packages |= versions("ai-edge-litert", "litert-torch", "ai-edge-quantizer", "transformers")
    table = Table(f"Exported models against peers, {options.threads} threads", packages)
    for group in options.groups:
        keras.utils.set_random_seed(0)
        importlib.import_module(GROUPS[group]).measure(table, options)
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
