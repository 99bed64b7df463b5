"""Exports mixers and records the cost of their files. `python cost_worker.py DIRECTORY LENGTHS NAME ...`.

Runs in a separate process because converters leak memory. `export_worker.py` compares the outputs of the files; here
they are only written. The ONNX file is not optimized, because profiles do not show the inside of fused operators.
"""

import dataclasses
import json
import sys
from pathlib import Path

import keras
import numpy as np

import cases
from file_cost import onnx_cost, tflite_cost
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.onnx import convert as onnx_format
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.saved_model import convert as saved_model
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.tflite import convert as tflite

COSTS = {"onnx": ("model.onnx", onnx_cost), "tflite": ("model.tflite", tflite_cost)}


def write(layer, directory):
    """Writes the ONNX and TFLite files of the self-attention of a mixer, for any length."""
    x = keras.Input((None, cases.WIDTH), name="x")
    causal = "causal" in layer.supports
    model = keras.Model(x, layer(x, x, use_causal_mask=causal))
    spec = dataclasses.replace(
        functional_spec(model, probes=[{"batch": 1, "length": 9}]), onnx=OnnxOptions(optimize=False)
    )
    traced = TracedModule(spec)
    onnx_format.write(traced, spec, directory)
    saved_model.write(traced, spec, directory)
    tflite.write(traced, spec, directory)


def measure(name, directory, lengths):
    """Returns a dict of format to a list of costs, one per length."""
    directory.mkdir()
    case = cases.MIXERS[name]
    results = {}
    write(case.make(**case.growth.arguments(max(lengths))), directory)
    for form, (file, cost) in COSTS.items():
        x = np.random.default_rng(0).normal(size=(1, max(lengths), cases.WIDTH)).astype("float32")
        results[form] = [dataclasses.asdict(cost(directory / file, {"x": x[:, :length]})) for length in lengths]
    return results


def main(directory, lengths, *names):
    lengths = [int(length) for length in lengths.split(",")]
    results = {}
    for name in names:
        try:
            results[name] = measure(name, Path(directory, name), lengths)
        except Exception as error:  # An error of one mixer must not stop the others.
            results[name] = {"error": f"{type(error).__name__}: {error}"}
        Path(directory, "results.json").write_text(json.dumps(results))
        keras.backend.clear_session()


if __name__ == "__main__":
    main(*sys.argv[1:])
