"""The exported encoder and ViT in each runtime, against the same network from KerasHub in the same runtime.

    python benchmarks/inference.py                      # the encoder, batch 1 and 8
    python benchmarks/inference.py --networks vit --formats onnx --peers keras_hub keras_layers

A peer is measured twice: with the file of its own `model.export`, if it is valid, and with the file of our exporter, which
separates the effect of the network from that of the exporter.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import tempfile

import keras
import numpy as np
from engines import ENGINES, in_words, proven
from measure import (
    Table,
    arguments,
    limit_tensorflow_threads,
    milliseconds,
    ratio,
    ratio_note,
    take_turns,
    timed,
    versions,
)
from networks import ENCODER, ENCODERS, TINY, VIT, VITS, same_weights, trained_looking

from keras_transformer.export import export

NETWORKS = {"encoder": (ENCODERS, ENCODER), "vit": (VITS, VIT)}
KERAS_FORMATS = {"saved_model": "tf_saved_model", "tflite": "litert", "onnx": "onnx"}
OUR_FILES = {"saved_model": "saved_model", "tflite": "model.tflite", "onnx": "model.onnx"}


def make_inputs(network, measures, batch_size):
    random = np.random.default_rng(0)
    if network == "vit":
        return {"images": random.random((batch_size, measures.image_size, measures.image_size, 3), dtype="float32")}
    token_ids = random.integers(0, measures.vocabulary_size, (batch_size, measures.length), dtype="int32")
    return {"token_ids": token_ids, "padding_mask": np.ones(token_ids.shape, "bool")}


def call(model, inputs):
    """Returns the outputs of Keras, the reference of every file."""
    return np.asarray(model(inputs if isinstance(model.input, dict) else inputs["images"], training=False))


def our_export(model, directory, name):
    export(model, directory, formats=[name])
    return directory / OUR_FILES[name]


def own_export(model, directory, name):
    """Exports by Keras, which adds the suffix of the format."""
    path = directory if name == "saved_model" else directory.with_suffix(f".{name}")
    model.export(str(path), format=KERAS_FORMATS[name], verbose=False)
    return path


def entrants(peers):
    """Returns the entrants: dict of row name to (network name, export function)."""
    found = {"ours": ("ours", our_export)}
    for peer in peers:
        found[peer] = (peer, own_export)
        found[f"{peer}, our export"] = (peer, our_export)
    return found


def open_files(models, name, options, directory, inputs):
    """Exports every entrant to one format and loads it; a failure is returned as text."""
    opened = {}
    for index, (label, (network, exporter)) in enumerate(entrants(options.peers).items()):
        try:
            path = exporter(models[network], directory / f"{name}_{index}", name)
            run = ENGINES[name](path, options.threads)
        except Exception as error:  # Any error of an exporter or a runtime is a result.
            opened[label] = f"invalid: {in_words(error)}"
            continue
        opened[label] = proven(run, inputs, call(models[network], inputs)) or run
    if isinstance(opened["ours"], str):
        raise RuntimeError(f"Our own {name} file: {opened['ours']}")
    return opened


def measure(table, network, name, models, opened, options):
    valid = {label: run for label, run in opened.items() if callable(run)}
    measures = models["measures"]
    for batch_size in options.batch_sizes:
        inputs = make_inputs(network, measures, batch_size)
        rivals = {label: timed(lambda run=run: run(inputs), options.repeat) for label, run in valid.items()}  # noqa: B023
        turns = take_turns(rivals, options.rounds)
        for peer in list(opened)[1:]:
            row = {"network": network, "format": name, "batch": batch_size, "peer": peer}
            row["ours_ms"] = milliseconds(turns["ours"])
            if peer in valid:
                row |= {"peer_ms": milliseconds(turns[peer]), **ratio(turns["ours"], turns[peer])}
            else:
                table.note(f"{network}, {name}, {peer}: {opened[peer]}")
            table.add(**row)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["encoder"])
    parser.add_argument("--formats", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--peers", nargs="+", choices=list(VITS)[1:], default=["keras_hub"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="calls per turn")
    return parser.parse_args()


def main():
    options = parse()
    limit_tensorflow_threads(options.threads)
    packages = versions("keras-transformer", "keras", "tensorflow", "ai-edge-litert", "onnxruntime", "keras-hub")
    table = Table(f"Inference of exported files, {options.threads} threads", packages)
    for network in options.networks:
        builders, measures = NETWORKS[network]
        measures = measures._replace(**TINY) if options.tiny else measures
        keras.utils.set_random_seed(0)
        models = {name: trained_looking(builders[name](measures)) for name in ["ours", *options.peers]}
        same_weights(*models.values())
        models["measures"] = measures
        for name in options.formats:
            with tempfile.TemporaryDirectory() as directory:
                opened = open_files(models, name, options, pathlib.Path(directory), make_inputs(network, measures, 2))
                measure(table, network, name, models, opened, options)
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
