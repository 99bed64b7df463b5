"""KerasHub backbones exported by our `export` and by KerasHub's: which files are equal to the Keras model.

    python benchmarks/backbones.py
    python benchmarks/backbones.py --only llama mixtral --ours-only

Each backbone is small, has random weights, and is exported in a separate process; each file is run in its own runtime. A
cell is the largest difference from Keras relative to the output scale, or the error.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from measure import Table, versions

FORMATS = ("saved_model", "tflite", "onnx")
KERAS_FORMATS = {"saved_model": "tf_saved_model", "tflite": "litert", "onnx": "onnx"}
_TEXT = {"vocabulary_size": 120, "num_layers": 2, "hidden_dim": 32, "intermediate_dim": 64}
_HEADS = {**_TEXT, "num_heads": 4}
_GROUPED = {**_TEXT, "num_query_heads": 4, "num_key_value_heads": 2}
# Name -> (class in keras_hub.models, its arguments).
BACKBONES = {
    "bert": ("BertBackbone", _HEADS),
    "albert": ("AlbertBackbone", {**_HEADS, "embedding_dim": 16}),
    "distil_bert": ("DistilBertBackbone", _HEADS),
    "roberta": ("RobertaBackbone", _HEADS),
    "roformer": ("RoformerV2Backbone", {**_HEADS, "head_size": 8}),
    "xlnet": ("XLNetBackbone", _HEADS),
    "gpt2": ("GPT2Backbone", _HEADS),
    "bloom": ("BloomBackbone", _HEADS),
    "llama": ("LlamaBackbone", _GROUPED),
    "mixtral": ("MixtralBackbone", {**_GROUPED, "num_experts": 4}),
    "t5": ("T5Backbone", _HEADS),
    "bart": ("BartBackbone", _HEADS),
    "whisper": ("WhisperBackbone", {**_HEADS, "max_encoder_sequence_length": 64, "max_decoder_sequence_length": 32}),
    "vit": (
        "ViTBackbone",
        {
            "image_shape": (32, 32, 3),
            "patch_size": (8, 8),
            "num_layers": 2,
            "num_heads": 4,
            "hidden_dim": 32,
            "mlp_dim": 64,
        },
    ),
    "swin": (
        "SwinTransformerBackbone",
        {"image_shape": (64, 64, 3), "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
}


def build(name):
    import keras
    import keras_hub

    keras.utils.set_random_seed(0)
    cls, arguments = BACKBONES[name]
    model = getattr(keras_hub.models, cls)(**arguments)
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        # Not the initial values, so that a missing bias or scale is detected.
        weight.assign(weight.numpy() + random.normal(0, 0.05, weight.shape).astype("float32"))
    return model


def ours(model, format, folder):
    from keras_transformer.export import ExportError, export

    try:
        return f"{export(model, folder / 'bundle', [format])[format].ratio:.0e}"
    except ExportError as error:
        return f"{type(error).__name__}: {error}"


def theirs(model, format, folder):
    """Runs KerasHub's own export on the same kind of probes."""
    from engines import ENGINES, in_words

    from keras_transformer.export.spec.functional import functional_spec

    path = folder / ("saved_model" if format == "saved_model" else f"model.{format}")
    (signature,) = functional_spec(model).signatures.values()
    try:
        model.export(str(path), format=KERAS_FORMATS[format], verbose=False)
        run = ENGINES[format](path, 2)
        worst = 0.0
        for probe in signature.probes:
            if len(probe.outputs) != 1:
                return "several outputs: not compared"
            (expected,) = probe.outputs.values()
            found = run(probe.inputs)
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
        return f"{worst:.0e}" if worst < 1e-3 else f"wrong by {worst:.0e}"
    except Exception as error:  # Any error of the peer is a result.
        return in_words(error) or type(error).__name__


def run_one(name, exporter, format):
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"ours": ours, "theirs": theirs}[exporter](build(name), format, pathlib.Path(folder))))


def finding(name, exporter, format):
    """Returns the result of one export in a separate process, because converters crash and leak."""
    command = [sys.executable, __file__, "--one", name, exporter, format]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end after 900 s"
    if done.returncode:
        return f"the process ended with {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--only", nargs="+", choices=BACKBONES)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="ignored: the backbones are small")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return run_one(*options.one)
    table = Table(
        "KerasHub's backbones, exported", versions("tensorflow", "keras", "keras-hub", "onnxruntime", "tf2onnx")
    )
    exporters = ("ours",) if options.ours_only else ("ours", "theirs")
    right = dict.fromkeys(exporters, 0)
    for name in options.only or BACKBONES:
        row = {}
        for exporter in exporters:
            found = {format: finding(name, exporter, format) for format in options.formats}
            row |= {f"{exporter} {format}": text if _is_figure(text) else "no" for format, text in found.items()}
            right[exporter] += all(map(_is_figure, found.values()))
            for format, text in found.items():
                if not _is_figure(text):
                    table.note(f"{name}, {exporter}, {format}: {text}")
        table.add(backbone=name, **row)
    table.note(", ".join(f"{count} correct in all formats: {exporter}" for exporter, count in right.items()))
    table.finish(options.json)


def _is_figure(text):
    try:
        return bool(float(text) < 1e-3)
    except ValueError:
        return False


if __name__ == "__main__":
    main()
