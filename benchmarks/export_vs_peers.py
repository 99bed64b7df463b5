"""What we export against what peers export, with the same weights, in one run: time, size and accuracy as ratios.

    python benchmarks/export_vs_peers.py                               # every group
    python benchmarks/export_vs_peers.py --groups fp32 --networks encoder --json encoder.json

A group is a module beside this file with a function `measure(table, options)`, which adds its rows.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import importlib

import keras
from measure import Table, arguments, ratio_note, versions

GROUPS = {"fp32": "peers_fp32", "int8": "peers_int8", "tflite": "peers_tflite"}
NETWORKS = ("encoder", "vit_s")


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--only", metavar="TEXT", help="only the rivals in PyTorch whose name holds this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="calls in one turn")
    return parser.parse_args()


def main():
    options = parse()
    packages = versions("keras-transformer", "keras", "keras-hub", "tensorflow", "torch", "onnx", "onnxruntime")
    table = Table(f"Exported models against peers, {options.threads} threads", packages)
    keras.utils.set_random_seed(0)
    for group in options.groups:
        importlib.import_module(GROUPS[group]).measure(table, options)
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
